import type { Kysely } from 'kysely';
import { toAppError } from '@stowage/common/errors';
import type { ClaimedJob, JobRun, JsonObject } from '@stowage/common/jobs/job';
import { backgroundContext } from '@stowage/common/rpc/context';
import type { PlacedBlob } from '@stowage/proto/stowage/catalog/v1/replica';
import type { BackendSlots } from '../backend-slots.ts';
import type { PlanLimits } from '../planner/facts.ts';
import { planBlob } from '../planner/plan-blob.ts';
import type { Tables } from '../tables.ts';
import { Comparison } from './comparison.ts';
import type { CompareNeeds } from './comparison.ts';
import { eachOf } from './each-of.ts';
import { executeBlob } from './execute-blob.ts';
import type { BlobFacts, Executor, View } from './executor.ts';
import { progressTotal } from './progress-total.ts';
import { blobFacts, RemoteExecutor } from './remote-executor.ts';
import type { Services } from './remote-executor.ts';
import { SlottedExecutor } from './slotted-executor.ts';
import { Tally } from './tally.ts';
import { FreshView, loadView } from './view.ts';

/** What a full reconcile, and a job for one blob, is handed. */
export interface ReconcileNeeds {
  db: Kysely<Tables>;
  services: Services;
  limits: PlanLimits;
  /** How many blobs are worked on at once. */
  atOnce: number;
  /** False where work waits for its turn: how long it takes tells nothing of its backend then. */
  judgesSlow?: boolean;
  /** Unset: what backends hold is not listed. */
  compare?: CompareNeeds;
}

const pageSize = 500;
/** How many blobs are looked at by one call where nearly all are in order. */
const scanMax = 10_000;
const listTimeoutMs = 30_000;

const phases = ['compare', 'damaged', 'all'] as const;
type Phase = (typeof phases)[number];

interface Page {
  /** Those to plan for. */
  items: readonly PlacedBlob[];
  /** The id of the last one that was looked at; empty where there was none. */
  last: string;
  isLast: boolean;
}

/** One run over all: what backends list, then what is known to be damaged, then every blob. */
export class Walk {
  readonly tally: Tally;
  readonly #needs: ReconcileNeeds & { slots: BackendSlots };
  readonly #run: JobRun;
  readonly #context: ReturnType<typeof backgroundContext>;
  readonly #executor: Executor;
  readonly #view: FreshView;
  readonly #comparison: Comparison | null;
  #phase: Phase;
  #after: string;
  #limit = pageSize;

  constructor(
    needs: ReconcileNeeds & { slots: BackendSlots },
    job: ClaimedJob,
    run: JobRun,
    position: JsonObject | null,
  ) {
    this.#needs = needs;
    this.#run = run;
    this.#context = backgroundContext(run.signal, job.id);
    const remote = new RemoteExecutor(needs.services, this.#context, needs.limits.freshMs);
    this.#executor = new SlottedExecutor(remote, needs.slots);
    this.#view = new FreshView(() => loadView(needs.db, needs.limits));
    this.#phase = phases.find((phase) => phase === position?.['phase']) ?? 'compare';
    this.#after = typeof position?.['after'] === 'string' ? position['after'] : '';
    const counts = position?.['tally'];
    const { compare, db, atOnce } = needs;
    this.#comparison = compare
      ? new Comparison(
          { ...compare, db, atOnce, executor: this.#executor, context: this.#context },
          job,
          position?.['compared'],
        )
      : null;
    this.tally = Tally.from(typeof counts === 'object' && !Array.isArray(counts) ? counts : null);
  }

  /** Tells how much there is to do. */
  async begin(): Promise<void> {
    const { compare, services } = this.#needs;
    if (!compare) return;
    this.#run.progress({ total: await progressTotal(services.content, compare.sides.comparison, this.#context) });
  }

  get isClean(): boolean {
    return this.tally.isClean && (this.#comparison?.isClean ?? true);
  }

  result(): JsonObject {
    const counts = this.tally.toJson();
    if (!this.#comparison) return counts;
    this.#run.progress({ total: this.#done() });
    return { ...counts, compared: this.#comparison.reports() };
  }

  position(): JsonObject {
    const compared = this.#comparison ? { compared: this.#comparison.position() } : {};
    return { phase: this.#phase, after: this.#after, tally: this.tally.toJson(), ...compared };
  }

  /** Works through the next page; false when that was the last one. */
  async page(): Promise<boolean> {
    this.#run.signal.throwIfAborted();
    if (this.#phase === 'compare') return this.#compare();
    const { items, last, isLast } = await (this.#phase === 'damaged' ? this.#damagedPage() : this.#nextPage());
    const toDo = this.#toDo(items.map(blobFacts), await this.#view.get());
    await eachOf(toDo, this.#needs.atOnce, (blob) => this.#place(blob));
    this.#run.progress({ done: this.#done(), bytes: this.tally.counts.bytes });
    if (last !== '') this.#after = last;
    if (!isLast) return true;
    if (this.#phase === 'all') return false;
    this.#phase = 'all';
    this.#after = '';
    return true;
  }

  async #compare(): Promise<true> {
    if (!(await this.#comparison?.turn())) this.#phase = 'damaged';
    this.#run.progress({ done: this.#done() });
    return true;
  }

  #done(): number {
    return this.tally.counts.blobs + (this.#comparison?.done ?? 0);
  }

  async #damagedPage(): Promise<Page> {
    const { replicas } = this.#needs.services;
    const wanted = { after: this.#after, limit: pageSize, damaged: true };
    const { items } = await replicas.listBlobs(wanted, this.#context, { timeoutMs: listTimeoutMs });
    return { items, last: items.at(-1)?.id ?? '', isLast: items.length < pageSize };
  }

  /** Of many blobs that lie right none is fetched; a page grows while there are few others, so that memory stays bounded. */
  async #nextPage(): Promise<Page> {
    const { replicas } = this.#needs.services;
    const inOrder = (await this.#view.get()).inOrder();
    const wanted = { after: this.#after, limit: this.#limit, inOrder };
    const { items, blobs, bytes, last } = await replicas.scanBlobs(wanted, this.#context, { timeoutMs: listTimeoutMs });
    this.tally.seen(blobs, bytes);
    const isLast = blobs < this.#limit;
    this.#limit = items.length > pageSize / 2 ? pageSize : Math.min(this.#limit * 2, scanMax);
    return { items, last, isLast };
  }

  /** Those that are not as they should be, the most endangered first. */
  #toDo(blobs: readonly BlobFacts[], { world, toPlan }: View): BlobFacts[] {
    const counting = this.#phase === 'all';
    const found: { blob: BlobFacts; good: number }[] = [];
    for (const blob of blobs) {
      const plan = planBlob(world, toPlan(blob));
      if (plan.steps.length === 0 && plan.problems.length === 0) continue;
      if (plan.rescue && !counting) continue;
      found.push({ blob, good: blob.replicas.filter(({ state }) => state === 'available').length });
    }
    return found.sort((one, other) => one.good - other.good).map(({ blob }) => blob);
  }

  async #place(blob: BlobFacts): Promise<void> {
    const needs = { executor: this.#executor, view: () => this.#view.get(), signal: this.#run.signal };
    try {
      const outcome = await executeBlob(needs, blob);
      // What the first phase leaves undone is met again by the second, which tells of it.
      if (this.#phase === 'damaged') this.tally.repaired(blob, outcome);
      else this.tally.add(blob, outcome);
    } catch (error) {
      this.#run.signal.throwIfAborted();
      const { code, detail } = toAppError(error);
      if (this.#phase === 'all') this.tally.failed(blob, code, detail);
    }
  }
}
