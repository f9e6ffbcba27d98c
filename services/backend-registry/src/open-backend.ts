import type { Kysely } from 'kysely';
import { AppError, unavailable } from '@stowage/common/errors';
import type { Logger } from '@stowage/common/runtime/logger';
import { noteGlimpse, noteHealth, placeOf } from './backend-health.ts';
import type { Finding, Weight } from './backend-health.ts';
import { checkMarker } from './backend-marker.ts';
import { findBackend } from './backend-row.ts';
import { ChangedMeanwhile, current } from './changed-meanwhile.ts';
import type { ParsedConfig } from './config/parse-config.ts';
import { probe, step, StepFault } from './probe.ts';
import { CurrentSecrets } from './secrets/current-secrets.ts';
import type { KeyRing } from './secrets/key-ring.ts';
import type { ReferencedSecrets } from './secrets/secret-ref.ts';
import { readSecrets } from './secrets/secret-table.ts';
import { SharedTurn } from './shared-turn.ts';
import { SlowLooks } from './slow-looks.ts';
import type { AppendableStore, BlobStore } from './stores/blob-store.ts';
import { davRootPath, isAppendable, openStore } from './stores/open-store.ts';
import type { StoreNeeds } from './stores/open-store.ts';
import type { BackendRow, Tables } from './tables.ts';

/** How long a marker that was found right is believed, and the row of its backend with it. */
const believedMs = 30_000;

interface Opened {
  /** What the store was opened from: another one is opened when this changes. */
  location: string;
  /** The secrets that it was opened with: another one is opened when they are others. */
  secrets: CurrentSecrets;
  store: BlobStore;
  identity: SharedTurn<string | null>;
  /** Both of the clock that nobody sets. */
  foundRightAt: number;
  believedUntil: number;
}

interface Needs {
  db: Kysely<Tables>;
  /** Opens the secrets of backends. */
  keys: () => KeyRing;
  /** Where the values of secrets are that are not sealed. */
  references: ReferencedSecrets;
  stores: StoreNeeds;
  logger: Logger;
}

/** The stores of all backends: each opened once, and checked by its identity marker again and again. */
export class OpenBackends {
  readonly #needs: Needs;
  readonly #opened = new Map<string, Opened>();
  readonly #checking = new Map<string, Promise<BlobStore>>();
  /** Counts what was heard of changes: what was begun before the last one is not believed. */
  #changes = 0;
  readonly #slow = new SlowLooks();

  constructor(needs: Needs) {
    this.#needs = needs;
  }

  /**
   * The store of a backend, whose marker was right at most 30 s ago: an unmounted disk is `unavailable`, never empty.
   * Throws `not_found` for an unknown backend, `unavailable` for one that can't be used.
   */
  async open(backendId: string): Promise<BlobStore> {
    const opened = this.#opened.get(backendId);
    return opened && opened.believedUntil > performance.now() ? opened.store : this.recheck(backendId);
  }

  /** As open, where the marker may have been found right so long ago only. */
  async openFresh(backendId: string, withinMs: number): Promise<BlobStore> {
    const opened = this.#opened.get(backendId);
    const isFresh = opened !== undefined && performance.now() - opened.foundRightAt < withinMs;
    return isFresh ? this.open(backendId) : this.recheck(backendId);
  }

  /** As open, with the marker looked at now. Of a backend that hangs some wait, and the others are told at once. */
  async recheck(backendId: string): Promise<BlobStore> {
    const running = this.#checking.get(backendId);
    this.#slow.refuse(backendId, running !== undefined);
    if (running) return running;
    const looking = this.#slow.timed(backendId, () => current(() => this.#glimpse(backendId)));
    const checking = looking.finally(() => this.#checking.delete(backendId));
    this.#checking.set(backendId, checking);
    return checking;
  }

  /**
   * Runs `work` on a backend's store. Before its `not_found` is believed the marker is looked at again, so that
   * nothing is reported as missing that lies on a disk which was unmounted just now. After an `unavailable` the next who
   * wants the store has the marker looked at.
   */
  async use<R>(backendId: string, work: (store: BlobStore) => Promise<R>): Promise<R> {
    const store = await this.open(backendId);
    try {
      return await work(store);
    } catch (error) {
      if (error instanceof AppError && error.code === 'not_found') await this.recheck(backendId);
      if (error instanceof AppError && error.code === 'unavailable') this.#disbelieve(backendId);
      throw error;
    }
  }

  /** As use, on a store that content can grow in. */
  async useAppendable<R>(backendId: string, work: (store: AppendableStore) => Promise<R>): Promise<R> {
    return this.use(backendId, (store) => work(requireAppendable(store)));
  }

  /**
   * Throws `unavailable` unless `store` is still where the backend lies, and bears its marker now: so that what was just
   * written there lies on this backend, not on a disk that was put in its place, or at a place that it was moved away
   * from, since the marker was last looked at.
   */
  async confirm(backendId: string, store: BlobStore): Promise<void> {
    const opened = this.#opened.get(backendId);
    if (opened?.store === store && (await opened.identity.run()) === backendId) {
      if (opened.believedUntil > performance.now() || (await this.recheck(backendId)) === store) return;
    }
    this.#disbelieve(backendId);
    await this.recheck(backendId);
    throw unavailable('The place of the backend was another one meanwhile.');
  }

  /** Probes a backend and notes what that showed. Throws `not_found`, and `unavailable` for the database only. */
  async check(backendId: string, weight: Weight): Promise<void> {
    return current(async () => {
      const changes = this.#changes;
      const row = await findBackend(this.#needs.db, backendId);
      const finding = await this.#look(row, async () => {
        await probe(await this.#openChecked(row, changes));
      });
      if (!(await noteHealth(this.#needs.db, row, finding, weight))) throw new ChangedMeanwhile();
      if (!finding.fault) this.#slow.forget(backendId);
    });
  }

  /** Whether a backend's marker lies at another place, of which the new configuration tells. */
  async isMarkedAt(row: BackendRow, { config, ...changed }: ParsedConfig): Promise<boolean> {
    try {
      const { store } = await step('open', () => this.#openStore({ ...row, config, marked: true }, changed));
      return (await step('marker', () => store.identity())) === row.id;
    } catch (error) {
      if (error instanceof StepFault) return false;
      throw error;
    }
  }

  /** Looks at row and marker again before a store is used the next time; null is every one. */
  doubt(backendId: string | null): void {
    this.#changes += 1;
    this.#slow.forget(backendId);
    for (const id of backendId === null ? this.#opened.keys() : [backendId]) this.#disbelieve(id);
  }

  #disbelieve(backendId: string): void {
    const opened = this.#opened.get(backendId);
    if (opened) Object.assign(opened, { believedUntil: 0, foundRightAt: Number.NEGATIVE_INFINITY });
  }

  async #glimpse(backendId: string): Promise<BlobStore> {
    const changes = this.#changes;
    const row = await findBackend(this.#needs.db, backendId);
    const seen: { store: BlobStore | null } = { store: null };
    const finding = await this.#look(row, async () => {
      seen.store = await this.#openChecked(row, changes);
    });
    await noteGlimpse(this.#needs.db, row, finding);
    if (seen.store) return seen.store;
    throw unavailable(finding.fault?.detail ?? 'The backend can not be used just now.');
  }

  async #look(row: BackendRow, work: () => Promise<void>): Promise<Finding> {
    const startedAt = performance.now();
    const fault = await work().then(
      () => null,
      (error: unknown) => {
        if (!(error instanceof StepFault)) throw error;
        const { cause } = error;
        const why = cause instanceof AppError ? (cause.cause ?? cause) : cause;
        this.#needs.logger.warn({ err: why, backend_id: row.id, step: error.fault.step }, 'A backend can not be used.');
        return error.fault;
      },
    );
    return { fault, warning: fault ? null : warningOf(row), latencyMs: performance.now() - startedAt };
  }

  /** `changes` were counted before the row was read: a change since then must not end with the place before believed. */
  async #openChecked(row: BackendRow, changes: number): Promise<BlobStore> {
    const location = placeOf(row);
    const known = this.#opened.get(row.id);
    // The same store also after a bad time: it knows who is writing.
    const same = known?.location === location && known.secrets.areCurrent() ? known : null;
    const opened = same ?? (await step('open', () => this.#openStore(row)));
    try {
      await step('marker', () => checkMarker(this.#needs.db, opened.store, row));
    } catch (error) {
      this.#disbelieve(row.id);
      throw error;
    }
    if (opened !== same) await step('prepare', () => opened.store.prepare());
    await this.#requireSame(row, changes);
    if (!opened.secrets.areCurrent()) throw new ChangedMeanwhile();
    opened.foundRightAt = performance.now();
    opened.believedUntil = opened.foundRightAt + believedMs;
    this.#opened.set(row.id, opened);
    return opened.store;
  }

  /** Throws ChangedMeanwhile where what was heard since `changes` were counted is that the backend lies elsewhere. */
  async #requireSame(row: BackendRow, changes: number): Promise<void> {
    for (let known = changes; known !== this.#changes;) {
      known = this.#changes;
      if (placeOf(await findBackend(this.#needs.db, row.id)) !== placeOf(row)) throw new ChangedMeanwhile();
    }
  }

  async #openStore(row: BackendRow, changed: Partial<ParsedConfig> = {}): Promise<Opened> {
    const { db, keys, references, stores } = this.#needs;
    const { id, type, config, marked, is_default: isDefault } = row;
    const { sealed, refs } = await readSecrets(db, keys(), id);
    const secrets = await CurrentSecrets.find(references, sealed, refs, changed);
    const store = await openStore({ id, type, config, secrets: secrets.values, isDefault, marked }, stores);
    const identity = new SharedTurn(() => store.identity());
    return { location: placeOf(row), secrets, store, identity, foundRightAt: 0, believedUntil: 0 };
  }
}

/** Throws `unavailable` for a store that content can't grow in. */
export function requireAppendable(store: BlobStore): AppendableStore {
  if (isAppendable(store)) return store;
  throw unavailable('Uploads can not grow on this backend.');
}

function warningOf({ type, config }: BackendRow): string | null {
  if (type !== 'webdav' || config['root_path'] !== undefined) return null;
  return `No root_path is set: ${davRootPath} is used.`;
}
