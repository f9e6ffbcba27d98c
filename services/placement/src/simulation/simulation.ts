import { ModelCatalog } from '@stowage/tests/support/model-catalog';
import { Random } from '@stowage/tests/support/random';
import { isReachable, isSound } from '../planner/facts.ts';
import type { PlanLimits, WantedCopies } from '../planner/facts.ts';
import { wantedBackends } from '../planner/plan-blob.ts';
import { PolicyBook } from '../policy-book.ts';
import type { View } from '../reconcile/executor.ts';
import { leaseMs, ModelJobs } from './model-jobs.ts';
import { SimulatedStores } from './simulated-stores.ts';
import { SimulatedTime } from './simulated-time.ts';
import type { SimulatedProcess } from './simulated-time.ts';
import { SimulatedWorker } from './simulated-worker.ts';
import type { WorkerWorld } from './simulated-worker.ts';

const backendIds = ['a', 'b', 'c'];
const classes = ['default', 'photo'];
const minuteMs = 60_000;
const graceMs = 30 * minuteMs;
const limits: PlanLimits = { outageGraceMs: 6 * 60 * minuteMs, freshMs: 60 * minuteMs };
/** Longer than anything that was decided by a fresh reading may take to be done. */
const marginMs = 10 * minuteMs;
const scrubAfterMs = 120 * minuteMs;
const workersCount = 3;
const roundsMax = 40;
const stepsMax = 20_000;

type Policy = WantedCopies & { fileClass: string };

export interface SimulationReport {
  steps: number;
  blobs: number;
  jobs: number;
  changes: number;
  /** How many rounds of a few minutes it took to come to rest once faults had stopped. */
  rounds: number;
}

/**
 * Catalog's rules, the job queue, stores, and workers that carry out real plans, all in one process under a clock and a
 * scheduler that the seed decides. Throws where something that was promised does not hold.
 */
export class Simulation {
  readonly #random: Random;
  readonly #time: SimulatedTime;
  readonly #catalog: ModelCatalog;
  readonly #stores: SimulatedStores;
  readonly #jobs: ModelJobs;
  readonly #world: WorkerWorld;
  readonly #policies = new Map<string, Policy>();
  #workers: SimulatedWorker[] = [];
  readonly #made: string[] = [];
  readonly #purged = new Set<string>();
  /** What happened, for whoever looks into a seed. */
  readonly #history: string[] = [];
  #saved = 0;
  #asked = 0;

  constructor(seed: number) {
    this.#random = new Random(seed);
    this.#time = new SimulatedTime(this.#random);
    const now = (): number => this.#time.now;
    this.#catalog = new ModelCatalog(now, graceMs);
    this.#stores = new SimulatedStores(backendIds, now);
    this.#jobs = new ModelJobs(now, this.#random);
    for (const id of backendIds) this.#catalog.backends.add(id);
    this.#world = {
      ...{ time: this.#time, stores: this.#stores, catalog: this.#catalog, jobs: this.#jobs, limits },
      ...{ failureRate: 0.03, unnoted: new Set<string>(), changes: 0, slot: null, broken: null },
      check: () => this.#checkSafe(),
      violated: (what: string) => this.#break(what),
      freeze: (process: SimulatedProcess) => this.#freeze(process),
      view: () => this.#view(),
    };
    this.#workers = Array.from({ length: workersCount }, (_, n) => new SimulatedWorker(`worker ${n}`, this.#world));
    this.#savePolicy('default');
  }

  /** First with faults for `steps` steps, then without until all is at rest. */
  async run(steps: number): Promise<SimulationReport> {
    try {
      for (let step = 0; step < steps; step += 1) await this.#step(true);
      const rounds = await this.#settle();
      this.#checkAtRest();
      return { steps, blobs: this.#made.length, jobs: this.#jobs.all.length, changes: this.#world.changes, rounds };
    } catch (error) {
      throw new Error(`${String(error)}\n${this.#history.slice(-60).join('\n')}`, { cause: error });
    } finally {
      for (const worker of this.#workers) worker.dead = true;
    }
  }

  async #step(faults: boolean): Promise<void> {
    if (faults && this.#random.chance(0.15)) this.#happen();
    for (const worker of this.#workers) if (this.#random.chance(0.3)) worker.claim();
    await this.#time.step();
    this.#goOn(this.#random.integer(0, 300));
    this.#checkSafe();
  }

  /** Time goes by: leases are renewed by those who run, and those who stood still long enough go on. */
  #goOn(ms: number): void {
    // In parts, so that whoever runs renews in time.
    for (let left = ms; left > 0; left -= leaseMs / 3) {
      this.#time.now += Math.min(left, leaseMs / 3);
      for (const worker of this.#workers) {
        if (worker.frozenUntil > 0 && worker.frozenUntil <= this.#time.now) worker.thaw();
        worker.renew();
      }
    }
    for (const { kind, blobId, backendId, runAfter } of this.#catalog.jobs.splice(0))
      this.#jobs.enqueue(kind, { blobId, ...(backendId ? { backendId } : {}) }, runAfter);
    if (this.#world.broken) throw this.#world.broken;
  }

  #happen(): void {
    const kinds: readonly [weight: number, happen: () => void][] = [
      [2, () => this.#upload()],
      [1, () => this.#purge()],
      [3, () => this.#read()],
      [2, () => this.#rot()],
      [1, () => this.#freeze(this.#pick(this.#workers))],
      [1, () => this.#crash()],
      [2, () => this.#upOrDown()],
      [3, () => this.#stores.check(this.#pick(backendIds))],
      [1, () => this.#enable()],
      [3, () => this.#savePolicy(this.#pick(classes))],
      [2, () => this.#wait()],
      [1, () => this.#scrub(scrubAfterMs)],
      [1, () => this.#housekeep()],
      [1, () => this.#reconcile()],
    ];
    const all = kinds.flatMap(([weight, happen]) => Array.from({ length: weight }, () => happen));
    this.#pick(all)();
  }

  #pick<T>(from: readonly T[]): T {
    const picked = from[this.#random.integer(0, from.length - 1)];
    if (picked === undefined) throw new Error('there is nothing to pick');
    return picked;
  }

  #note(what: string): void {
    this.#history.push(`${this.#time.now} ${what}`);
  }

  #view(): Pick<View, 'world' | 'toPlan'> {
    const book = new PolicyBook([...this.#policies.values()]);
    return { world: { backends: this.#stores.facts(), limits }, toPlan: (blob) => book.toPlan(blob) };
  }

  /** With exactly one full reconcile of its own. */
  #savePolicy(fileClass: string): void {
    const ordered = backendIds.map((id) => ({ id, at: this.#random.next() })).sort((one, other) => one.at - other.at);
    const named = ordered.slice(0, this.#random.integer(1, backendIds.length)).map(({ id }) => id);
    const policy = { fileClass, backendIds: named, replicas: this.#random.integer(1, named.length) };
    this.#policies.set(fileClass, policy);
    this.#note(`policy ${fileClass}: ${policy.replicas} of ${named.join()}`);
    this.#saved += 1;
    this.#jobs.enqueue('full_reconcile');
  }

  #reconcile(): void {
    this.#asked += 1;
    this.#jobs.enqueue('full_reconcile');
  }

  #upload(): void {
    const fileClass = this.#pick(classes);
    const policy = this.#policies.get(fileClass) ?? this.#policies.get('default');
    const target = [...(policy?.backendIds ?? []), 'a']
      .map((id) => this.#stores.at(id))
      .find(({ up, enabled }) => up && enabled);
    if (!target) return;
    const id = `blob-${String(this.#made.length).padStart(3, '0')}`;
    this.#made.push(id);
    this.#stores.put(target.id, id);
    this.#catalog.commitFile(`file of ${id}`, id, fileClass, [target.id]);
    this.#note(`${id} of ${fileClass} on ${target.id}`);
    this.#jobs.enqueue('place_blob', { blobId: id });
  }

  #purge(): void {
    const id = this.#made[this.#random.integer(0, this.#made.length - 1)];
    if (id === undefined || this.#purged.has(id)) return;
    this.#catalog.purgeFile(id, `file of ${id}`);
    this.#purged.add(id);
    this.#note(`${id} purged`);
  }

  /** A download, which reports what it finds bad. */
  #read(): void {
    const id = this.#made[this.#random.integer(0, this.#made.length - 1)];
    const blob = id === undefined ? null : this.#catalog.getBlob(id);
    for (const [backendId, { state }] of blob?.replicas ?? []) {
      if (!blob || !['available', 'unverified'].includes(state) || !this.#stores.at(backendId).up) continue;
      const object = this.#stores.at(backendId).objects.get(blob.id);
      if (object?.good) return;
      this.#catalog.reportReplica(blob.id, backendId, object ? 'corrupt' : 'missing');
    }
  }

  /**
   * A copy goes bad or away. Not the only one that can be read, which nobody could save; and not one that was read within
   * the time that a reading counts as fresh: to trust that is what the planner is built on.
   */
  #rot(): void {
    const id = this.#made[this.#random.integer(0, this.#made.length - 1)];
    const blob = id === undefined ? null : this.#catalog.getBlob(id);
    if (!blob) return;
    const good = this.#stores.good(blob.id);
    const victim = this.#pick(backendIds);
    const object = this.#stores.at(victim).objects.get(blob.id);
    const isKept = (other: string): boolean =>
      other !== victim && ['available', 'unverified'].includes(blob.replicas.get(other)?.state ?? '');
    if (!object || !good.some(isKept) || object.seenAt > this.#time.now - limits.freshMs - marginMs) return;
    if (this.#random.chance(0.3)) this.#stores.at(victim).objects.delete(blob.id);
    else object.good = false;
    this.#note(`${blob.id} rots on ${victim}`);
  }

  #freeze(worker: SimulatedProcess): void {
    worker.frozenUntil = this.#time.now + this.#pick([5_000, 40_000, 3 * minuteMs, 80 * minuteMs, 300 * minuteMs]);
    this.#note(`${worker.name} stands still until ${worker.frozenUntil}`);
  }

  #crash(): void {
    const worker = this.#pick(this.#workers);
    worker.dead = true;
    this.#note(`${worker.name} dies`);
    const next = new SimulatedWorker(`${worker.name}'`, this.#world);
    this.#workers = this.#workers.map((other) => (other === worker ? next : other));
  }

  #upOrDown(): void {
    const store = this.#stores.at(this.#pick(backendIds));
    store.up = !store.up;
    this.#note(`${store.id} is ${store.up ? 'up' : 'down'}`);
  }

  #enable(): void {
    const store = this.#stores.at(this.#pick(backendIds));
    store.enabled = !store.enabled;
    this.#note(`${store.id} is ${store.enabled ? 'enabled' : 'disabled'}`);
    this.#reconcile();
  }

  #wait(): void {
    this.#goOn(this.#pick([5_000, 45_000, 130_000, 40 * minuteMs, 100 * minuteMs]));
  }

  #scrub(afterMs: number): void {
    for (const blob of this.#catalog.listBlobs(false)) {
      for (const [backendId, { state, verifiedAt }] of blob.replicas) {
        const isStale = verifiedAt === null || verifiedAt < this.#time.now - afterMs;
        if (isStale && ['available', 'unverified'].includes(state))
          this.#jobs.enqueue('verify_blob', { blobId: blob.id, backendId });
      }
    }
  }

  /** What catalog's housekeeping does every ten minutes. */
  #housekeep(): void {
    this.#catalog.requeueRemovals();
  }

  /** Faults have stopped: gives after how many rounds nothing is left to do. Throws where that takes too long. */
  async #settle(): Promise<number> {
    this.#note('faults stop');
    this.#world.failureRate = 0;
    for (const id of backendIds) {
      this.#stores.at(id).up = true;
      this.#stores.check(id);
    }
    for (const worker of this.#workers) worker.frozenUntil = Math.min(worker.frozenUntil, this.#time.now + 1);
    let quiet = 0;
    for (let round = 1; round <= roundsMax; round += 1) {
      const before = this.#world.changes;
      this.#housekeep();
      this.#scrub(0);
      this.#reconcile();
      for (let steps = 0; this.#isBusy(); steps += 1) {
        if (steps > stepsMax) throw new Error('it does not come to rest');
        await this.#step(false);
      }
      quiet = this.#world.changes === before ? quiet + 1 : 0;
      if (quiet === 2 && this.#purgedLeft() === 0) return round;
      this.#goOn(11 * minuteMs);
    }
    throw new Error(`it has not converged after ${roundsMax} rounds`);
  }

  #isBusy(): boolean {
    const { now } = this.#time;
    const isLate = (job: { state: string; runAfter: number }): boolean =>
      job.state === 'pending' && job.runAfter <= now;
    return !this.#time.isIdle || this.#jobs.all.some((job) => job.state === 'running' || isLate(job));
  }

  #purgedLeft(): number {
    return [...this.#purged].filter((id) => this.#catalog.blobs.has(id)).length;
  }

  /** I1 and I2, at every moment. */
  #checkSafe(): void {
    for (const id of this.#made) {
      if (this.#purged.has(id)) {
        if (this.#catalog.getBlob(id)) this.#break(`${id} was purged and came back`);
      } else if (this.#stores.good(id).length === 0) {
        this.#break(`the last good copy of ${id} is gone`);
      }
    }
  }

  /** Thrown from here, and kept for when it is a job that runs into it. */
  #break(what: string): never {
    const error = new Error(what);
    this.#world.broken ??= error;
    throw error;
  }

  /** I5, I6, I7 and I11. */
  #checkAtRest(): void {
    const fail = (what: string): never => this.#break(`at rest: ${what}`);
    const isUnfinished = this.#jobs.all.find(({ state }) => state === 'running');
    if (isUnfinished) fail(`job ${isUnfinished.id} runs without end`);
    const reconciles = this.#jobs.all.filter(({ kind, runAfter }) => kind === 'full_reconcile' && runAfter >= 0).length;
    if (reconciles < this.#saved + this.#asked) fail('a policy has no reconcile of its own');
    for (const id of backendIds) {
      for (const blobId of this.#stores.at(id).objects.keys()) {
        const isKnown = this.#catalog.blobs.get(blobId)?.replicas.has(id);
        if (!isKnown && !this.#world.unnoted.has(`${id} ${blobId}`)) fail(`nothing knows ${blobId} on ${id}`);
      }
    }
    const { world, toPlan } = this.#view();
    for (const blob of this.#catalog.listBlobs(false)) {
      const { policies } = toPlan({
        id: blob.id,
        key: '',
        size: 1n,
        sha256: Buffer.alloc(0),
        fileClasses: [...blob.files.values()],
        replicas: [],
      });
      const wanted = wantedBackends(world, policies);
      for (const id of wanted.backendIds.filter((one) => isSound(world.backends.get(one)))) {
        if (blob.replicas.get(id)?.state !== 'available') fail(`${blob.id} is not on ${id}`);
      }
      const named = new Set(policies.flatMap((policy) => policy.backendIds));
      for (const [id, { state }] of blob.replicas) {
        if (state === 'available' && !this.#stores.good(blob.id).includes(id)) fail(`${blob.id} is not good on ${id}`);
        const mayGo = isReachable(world.backends.get(id)) && (world.backends.get(id)?.enabled || !named.has(id));
        if (wanted.missing === 0 && !wanted.backendIds.includes(id) && mayGo) fail(`${blob.id} is still on ${id}`);
      }
    }
  }
}
