import type { JsonObject } from '@stowage/common/jobs/job';
import type { Problem } from '../planner/plan-blob.ts';
import type { BlobOutcome } from './execute-blob.ts';
import type { BlobFacts } from './executor.ts';

const sampleMax = 20;

const zero = {
  blobs: 0,
  bytes: 0,
  copied: 0,
  copied_bytes: 0,
  verified: 0,
  removed: 0,
  held: 0,
  unsatisfiable: 0,
  lost: 0,
  failed: 0,
};
type Counts = typeof zero;

/** What a full reconcile did so far: counts of blobs, of replicas for copied, verified and removed, and a few failures. */
export class Tally {
  readonly #counts: Counts = { ...zero };
  readonly #sample: JsonObject[] = [];

  /** Goes on from what toJson gave. */
  static from(json: JsonObject | null): Tally {
    const tally = new Tally();
    for (const name of countNames) {
      const count = json?.[name];
      if (typeof count === 'number') tally.#counts[name] = count;
    }
    const sample = json?.['sample'];
    if (Array.isArray(sample)) tally.#sample.push(...sample.filter(isObject).slice(0, sampleMax));
    return tally;
  }

  get counts(): Readonly<Counts> {
    return this.#counts;
  }

  /** Whether nothing failed: a run right after would do no more. */
  get isClean(): boolean {
    return this.#counts.failed === 0;
  }

  /** Counts blobs that were looked at, whatever comes of it. */
  seen(blobs: number, bytes: bigint): void {
    this.#counts.blobs += blobs;
    this.#counts.bytes += Number(bytes);
  }

  /** Counts what was done, and tells nothing of what was not. */
  repaired(blob: BlobFacts, outcome: BlobOutcome): void {
    const counts = this.#counts;
    counts.copied += outcome.copied;
    counts.copied_bytes += outcome.copied * Number(blob.size);
    counts.verified += outcome.verified;
    counts.removed += outcome.removed;
  }

  /** Counts what was done, and what could not be. */
  add(blob: BlobFacts, outcome: BlobOutcome): void {
    const counts = this.#counts;
    this.repaired(blob, outcome);
    const { lost, problems, steps } = outcome.plan;
    if (lost) counts.lost += 1;
    else if (outcome.failures.length > 0 || steps.length > 0) counts.failed += 1;
    else if (problems.some(({ code }) => code !== 'removals_held')) counts.unsatisfiable += 1;
    else if (problems.length > 0) counts.held += 1;
    for (const { backendId, code, detail } of outcome.failures)
      this.#show({ blob_id: blob.id, backend_id: backendId, code, detail });
    if (outcome.failures.length === 0) for (const problem of problems) this.#show(problemJson(blob.id, problem));
  }

  /** A blob whose outcome is not even known. */
  failed(blob: BlobFacts, code: string, detail: string): void {
    this.#counts.failed += 1;
    this.#show({ blob_id: blob.id, backend_id: null, code, detail });
  }

  toJson(): JsonObject {
    return { ...this.#counts, sample: this.#sample };
  }

  #show(entry: JsonObject): void {
    if (this.#sample.length < sampleMax) this.#sample.push(entry);
  }
}

const countNames = [
  'blobs',
  'bytes',
  'copied',
  'copied_bytes',
  'verified',
  'removed',
  'held',
  'unsatisfiable',
  'lost',
  'failed',
] as const satisfies readonly (keyof Counts)[];

function problemJson(blobId: string, problem: Problem): JsonObject {
  const backendId = 'backendId' in problem ? problem.backendId : null;
  return { blob_id: blobId, backend_id: backendId, code: problem.code, detail: detailOf(problem) };
}

/** A sentence for an admin. */
export function detailOf(problem: Problem): string {
  switch (problem.code) {
    case 'too_few_backends':
      return `The policy asks for ${problem.missing} more than there are enabled backends that work.`;
    case 'backend_unhealthy':
      return 'The copy that belongs on this backend waits until it is healthy.';
    case 'source_unreachable':
      return 'The copies that could be read lie on backends that are unhealthy.';
    case 'removals_held':
      return 'The copy that is too many on this backend stays while removals are held, as after an import.';
    case 'lost':
      return 'No copy is left that could be read.';
  }
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
