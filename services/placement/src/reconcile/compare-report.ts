import type { Json, JsonObject } from '@stowage/common/jobs/job';
import type { Kept } from './removal-gate.ts';
import type { UnknownObject } from './unknown-objects.ts';

const sampleMax = 20;

const zero = {
  /** What the backend lists, and what the metadata has there. */
  listed: 0,
  listed_bytes: 0,
  known: 0,
  /** Replicas that were not as the metadata has them, and what looking at them showed. */
  looked_at: 0,
  missing: 0,
  corrupt: 0,
  /** Listed, of a known blob, and given a replica. */
  adopted: 0,
  failed: 0,
  unknown: 0,
  unknown_bytes: 0,
  /** Unknown, and given up: their removal is queued. */
  removed: 0,
  removed_bytes: 0,
};
type Counts = typeof zero;

/** What comparing one backend showed. */
export class BackendReport {
  readonly backendId: string;
  readonly counts: Counts = { ...zero };
  /** Why it was not compared as a whole; null where it was. */
  reason: string | null = null;
  /** Why unknown objects stay that might go. */
  kept: Kept | null = null;
  readonly #unknown: Json[] = [];
  readonly #failures: Json[] = [];

  constructor(backendId: string) {
    this.backendId = backendId;
  }

  /** Goes on from what toJson gave; null for what is no report. */
  static from(json: Json | undefined): BackendReport | null {
    if (!isObject(json) || typeof json['backend_id'] !== 'string') return null;
    const report = new BackendReport(json['backend_id']);
    for (const name of countNames) {
      const count = json[name];
      if (typeof count === 'number') report.counts[name] = count;
    }
    report.reason = typeof json['reason'] === 'string' ? json['reason'] : null;
    const { unknown_sample: unknown, failures } = json;
    if (Array.isArray(unknown)) report.#unknown.push(...unknown);
    if (Array.isArray(failures)) report.#failures.push(...failures);
    return report;
  }

  sawUnknown(objects: readonly UnknownObject[]): void {
    for (const { key, size, modifiedAt } of objects) {
      this.counts.unknown += 1;
      this.counts.unknown_bytes += size;
      if (this.#unknown.length < sampleMax) {
        this.#unknown.push({ key, size, modified_at: modifiedAt.toISOString() });
      }
    }
  }

  failed(blobId: string, code: string, detail: string): void {
    this.counts.failed += 1;
    if (this.#failures.length < sampleMax) this.#failures.push({ blob_id: blobId, code, detail });
  }

  toJson(): JsonObject {
    return {
      backend_id: this.backendId,
      compared: this.reason === null,
      reason: this.reason,
      ...this.counts,
      kept: this.kept,
      unknown_sample: this.#unknown,
      failures: this.#failures,
    };
  }
}

const countNames = Object.keys(zero).filter((name): name is keyof Counts => Object.hasOwn(zero, name));

export function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
