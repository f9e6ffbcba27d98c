import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { toAppError } from '@stowage/common/errors';
import { removalsHeldForMs } from '@stowage/common/jobs/removal-hold';
import type { ClaimedJob, Json, JsonObject } from '@stowage/common/jobs/job';
import type { CallContext } from '@stowage/common/rpc/context';
import { loadBackends } from '../backend-standing.ts';
import { isReachable } from '../planner/facts.ts';
import type { BackendFacts } from '../planner/facts.ts';
import type { Tables } from '../tables.ts';
import { BackendComparison } from './compare-backend.ts';
import type { BothSides } from './compare-backend.ts';
import { mergeStart } from './compare-merge.ts';
import type { MergePosition } from './compare-merge.ts';
import { BackendReport, isObject } from './compare-report.ts';
import type { Executor } from './executor.ts';
import { whyKept } from './removal-gate.ts';
import { UnknownObjects } from './unknown-objects.ts';
import type { Sighting } from './unknown-objects.ts';

/** What comparing takes beside what a full reconcile has anyway. */
export interface CompareNeeds {
  sides: BothSides;
  /** For how long unknown objects are kept, at least. */
  graceMs: number;
  /** How long a turn may take before its position is kept; 1 s unless told. */
  turnMs?: number;
}

interface Needs extends CompareNeeds {
  db: Kysely<Tables>;
  executor: Executor;
  atOnce: number;
  context: CallContext;
}

const defaultTurnMs = 1_000;
const condemnedAtOnce = 200;

interface Current {
  report: BackendReport;
  from: MergePosition;
  /** The last run that compared all of it. */
  before: string | null;
}

/**
 * Compares all healthy backends with the metadata, disabled ones too, one after the other, and then gives up unknown
 * objects where all that must hold for that holds. What can't be listed is told of, and the rest goes on.
 */
export class Comparison {
  readonly #needs: Needs;
  readonly #run: string;
  readonly #adminsWord: boolean;
  readonly #unknown: UnknownObjects;
  /** Those that were listed, or could not be, in the order of their ids. */
  readonly #reports: BackendReport[] = [];
  #current: Current | null = null;
  #running: BackendComparison | null = null;
  /** The backend whose unknown objects were dealt with last; null while backends are listed. */
  #cleared: string | null = null;

  constructor(needs: Needs, job: ClaimedJob, position: Json | undefined) {
    this.#needs = needs;
    this.#run = job.id;
    this.#adminsWord = job.params['remove_unknown'] === true;
    this.#unknown = new UnknownObjects(needs.db, needs.graceMs);
    if (isObject(position)) this.#resume(position);
  }

  /** How many replicas and objects were compared. */
  get done(): number {
    const all = [...this.#reports, ...(this.#current ? [this.#current.report] : [])];
    return all.reduce((sum, { counts }) => sum + counts.known, 0);
  }

  /** Whether nothing failed: a run right after would do no more. A backend that is away is waited for by no run. */
  get isClean(): boolean {
    return this.#reports.every(({ counts }) => counts.failed === 0);
  }

  reports(): JsonObject[] {
    return this.#reports.map((report) => report.toJson());
  }

  /** To go on from after a crash; a backend goes on at the page it was at, where its store still knows the cursor. */
  position(): JsonObject {
    const current = this.#current;
    return {
      reports: this.reports(),
      cleared: this.#cleared,
      current: current && {
        report: current.report.toJson(),
        before: current.before,
        ...(this.#running?.position ?? current.from),
      },
    };
  }

  /** Works for a turn; false when all is done. Throws what is in the way of the whole run only. */
  async turn(): Promise<boolean> {
    const until = performance.now() + (this.#needs.turnMs ?? defaultTurnMs);
    do {
      this.#needs.context.signal.throwIfAborted();
      if (!(await this.#step())) return false;
    } while (performance.now() < until);
    return true;
  }

  async #step(): Promise<boolean> {
    if (this.#cleared !== null) return this.#clear(this.#cleared);
    this.#current ??= await this.#next();
    if (this.#current) await this.#compare(this.#current);
    else this.#cleared = '';
    return true;
  }

  async #next(): Promise<Current | null> {
    const backends = [...(await loadBackends(this.#needs.db)).values()].sort((one, other) =>
      one.id < other.id ? -1 : 1,
    );
    const last = this.#reports.at(-1)?.backendId ?? '';
    const backend = backends.find(({ id }) => id > last);
    if (!backend) return null;
    const report = new BackendReport(backend.id);
    if (!isReachable(backend)) report.reason = reasonOf(backend);
    return { report, from: mergeStart, before: await this.#unknown.lastRun(backend.id) };
  }

  async #compare({ report, from, before }: Current): Promise<void> {
    const sighting = { backendId: report.backendId, run: this.#run, before };
    const { context } = this.#needs;
    try {
      if (report.reason === null) {
        this.#running ??= await this.#begin(report, sighting, from);
        if (await this.#running.step()) return;
        await this.#unknown.complete(sighting, context.signal);
      }
    } catch (error) {
      context.signal.throwIfAborted();
      report.reason = toAppError(error).detail;
    }
    this.#reports.push(report);
    this.#current = null;
    this.#running = null;
  }

  async #begin(report: BackendReport, sighting: Sighting, from: MergePosition): Promise<BackendComparison> {
    const { db, sides, executor, atOnce, context } = this.#needs;
    const enabled = (await loadBackends(db)).get(report.backendId)?.enabled === true;
    const needs = { sides, executor, atOnce, context, enabled, unknown: this.#unknown };
    return new BackendComparison(needs, report, sighting, from);
  }

  /** Deals with the unknown objects of the next backend. */
  async #clear(last: string): Promise<boolean> {
    const report = this.#reports.find(({ backendId }) => backendId > last);
    if (!report) return false;
    try {
      if (report.reason === null) await this.#removeUnknown(report);
    } catch (error) {
      this.#needs.context.signal.throwIfAborted();
      const { code, detail } = toAppError(error);
      report.failed('', code, detail);
    }
    this.#cleared = report.backendId;
    return true;
  }

  async #removeUnknown(report: BackendReport): Promise<void> {
    const { backendId, counts } = report;
    const removable = await this.#unknown.countRemovable(backendId, this.#run);
    const held = (await query(() => removalsHeldForMs(this.#needs.db))) > 0;
    const { listed, removed } = counts;
    report.kept = whyKept({ listed, removable, removed, held, adminsWord: this.#adminsWord });
    if (report.kept !== null) return;
    let after = '';
    for (;;) {
      this.#needs.context.signal.throwIfAborted();
      const objects = await this.#unknown.removable(backendId, this.#run, after, condemnedAtOnce);
      const last = objects.at(-1);
      if (!last) return;
      after = last.key;
      const ids = new Map(objects.map((object) => [object.key.slice(object.key.lastIndexOf('/') + 1), object]));
      const { blobIds } = await this.#needs.sides.comparison.condemnUnknownBlobs(
        { backendId, blobIds: [...ids.keys()], despiteHold: this.#adminsWord },
        this.#needs.context,
      );
      const gone = blobIds.flatMap((id) => ids.get(id) ?? []);
      counts.removed += gone.length;
      counts.removed_bytes += gone.reduce((sum, { size }) => sum + size, 0);
      await this.#unknown.forget(
        backendId,
        gone.map(({ key }) => key),
      );
    }
  }

  #resume({ reports, cleared, current }: JsonObject): void {
    for (const json of Array.isArray(reports) ? reports : []) {
      const report = BackendReport.from(json);
      if (report) this.#reports.push(report);
    }
    this.#cleared = typeof cleared === 'string' ? cleared : null;
    if (!isObject(current)) return;
    const { report: json, before, after, cursor } = current;
    const report = BackendReport.from(json);
    if (!report || typeof after !== 'string') return;
    const from = { after, cursor: typeof cursor === 'string' ? cursor : null };
    this.#current = { report, from, before: typeof before === 'string' ? before : null };
  }
}

function reasonOf({ health }: BackendFacts): string {
  return health === 'unhealthy' ? 'The backend is unhealthy.' : 'The backend was not checked yet.';
}
