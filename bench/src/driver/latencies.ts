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
