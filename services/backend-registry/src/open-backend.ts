import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { AppError, unavailable } from '@stowage/common/errors';
import type { Logger } from '@stowage/common/runtime/logger';
import { noteHealth } from './backend-health.ts';
import type { AppendableStore } from './stores/blob-store.ts';
import { LocalDirectory } from './stores/local-directory.ts';
import type { BackendRow, Tables } from './tables.ts';

/** How long a marker that was found right is believed, and the row of its backend with it. */
const believedMs = 30_000;

/** How long a store may take to show its marker: a hung network disk must not hang its callers. */
const identityTimeoutMs = 5_000;

interface Opened {
  /** What the store was opened from: another one is opened when this changes. */
  location: string;
  store: AppendableStore;
  /** Of the clock that nobody sets. */
  believedUntil: number;
}

/** The stores of all backends: each opened once, and checked by its identity marker again and again. */
export class OpenBackends {
  readonly #db: Kysely<Tables>;
  readonly #logger: Logger;
  readonly #opened = new Map<string, Opened>();
  readonly #checking = new Map<string, Promise<AppendableStore>>();

  constructor(db: Kysely<Tables>, logger: Logger) {
    this.#db = db;
    this.#logger = logger;
  }

  /**
   * The store of a backend, whose marker was right at most 30 s ago: an unmounted disk is `unavailable`, never empty.
   * Throws `not_found` for an unknown backend, `unavailable` for one that can't be used.
   */
  async open(backendId: string): Promise<AppendableStore> {
    const opened = this.#opened.get(backendId);
    return opened && opened.believedUntil > performance.now() ? opened.store : this.recheck(backendId);
  }

  /** As open, with the marker looked at now. */
  async recheck(backendId: string): Promise<AppendableStore> {
    const running = this.#checking.get(backendId);
    if (running) return running;
    const checking = this.#check(backendId).finally(() => this.#checking.delete(backendId));
    this.#checking.set(backendId, checking);
    return checking;
  }

  /**
   * Runs `work` on a backend's store. Before its `not_found` is believed the marker is looked at again, so that
   * nothing is reported as missing that lies on a disk which was unmounted just now.
   */
  async use<R>(backendId: string, work: (store: AppendableStore) => Promise<R>): Promise<R> {
    const store = await this.open(backendId);
    try {
      return await work(store);
    } catch (error) {
      if (error instanceof AppError && error.code === 'not_found') await this.recheck(backendId);
      throw error;
    }
  }

  async #check(backendId: string): Promise<AppendableStore> {
    const row = await query(() =>
      this.#db.selectFrom('registry.backends').selectAll().where('id', '=', backendId).executeTakeFirst(),
    );
    if (!row) throw new AppError('not_found', 'There is no such backend.');
    const startedAt = performance.now();
    const note = (fault: string | null): Promise<void> =>
      noteHealth(this.#db, row, { fault, latencyMs: performance.now() - startedAt });
    try {
      const store = await withinTime(this.#openChecked(row));
      await note(null);
      return store;
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      this.#logger.warn({ err: error.cause ?? error, backend_id: backendId }, 'A backend can not be used.');
      await note(error.detail);
      throw error;
    }
  }

  async #openChecked(row: BackendRow): Promise<AppendableStore> {
    const location = JSON.stringify([row.type, row.config]);
    const known = this.#opened.get(row.id);
    // The same store also after a bad time: it knows who is writing.
    const opened = known?.location === location ? known : { location, store: await openStore(row), believedUntil: 0 };
    try {
      await checkIdentity(opened.store, row.id);
    } catch (error) {
      opened.believedUntil = 0;
      throw error;
    }
    if (opened !== known) await opened.store.prepare();
    opened.believedUntil = performance.now() + believedMs;
    this.#opened.set(row.id, opened);
    return opened.store;
  }
}

async function openStore(row: BackendRow): Promise<AppendableStore> {
  if (row.type !== 'local_directory') throw unavailable(`Backends of the type ${row.type} are not supported yet.`);
  const rootPath = row.config['root_path'];
  if (typeof rootPath !== 'string') throw unavailable('The configuration of this backend names no root_path.');
  return LocalDirectory.open(rootPath);
}

/** Throws `unavailable` unless the store bears the marker of this backend. */
async function checkIdentity(store: AppendableStore, backendId: string): Promise<void> {
  const identity = await store.identity();
  if (identity === backendId) return;
  const fault =
    identity === null ? 'has no identity marker: is its disk mounted?' : 'bears the marker of another backend.';
  throw unavailable(`The place of this backend ${fault}`);
}

async function withinTime<R>(work: Promise<R>): Promise<R> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(unavailable('The backend did not answer in time.')), identityTimeoutMs);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
