/** The times of the operations of a load, and the load's own. */
export class Latencies {
  readonly #times: Float64Array;
  #count = 0;

  constructor(most: number) {
    this.#times = new Float64Array(most);
  }

  /** Notes an operation that began at `start`, by `performance.now()`. */
  note(start: number): void {
    this.#times[this.#count++] = performance.now() - start;
  }

  /** The time in ms that a share of the operations did not pass. */
  quantile(share: number): number {
    const sorted = this.#times.subarray(0, this.#count).sort();
    return sorted[Math.min(this.#count - 1, Math.floor(this.#count * share))] ?? 0;
  }
}

/** The times of operations of several kinds that take turns. */
export class LabelledLatencies {
  readonly #most: number;
  readonly #kinds = new Map<string, Latencies>();

  constructor(most: number) {
    this.#most = most;
  }

  note(label: string, start: number): void {
    let kind = this.#kinds.get(label);
    if (!kind) this.#kinds.set(label, (kind = new Latencies(this.#most)));
    kind.note(start);
  }

  /** The median of each kind, in ms. */
  medians(): Record<string, number> {
    return Object.fromEntries([...this.#kinds].map(([label, kind]) => [label, kind.quantile(0.5)]));
  }
}

/** Runs `work(0)` to `work(count - 1)`, as many at a time as there are workers; one that fails ends all. */
export async function inTurn<W>(
  workers: readonly W[],
  count: number,
  work: (worker: W, index: number) => Promise<void>,
): Promise<void> {
  let next = 0;
  await Promise.all(
    workers.map(async (worker) => {
      while (next < count) await work(worker, next++);
    }),
  );
}
