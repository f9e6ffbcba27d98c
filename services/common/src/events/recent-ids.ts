/** The last ids that were seen, so that what comes again is told. */
export class RecentIds {
  readonly #ids = new Set<string>();
  readonly #max: number;

  constructor(max = 10_000) {
    this.#max = max;
  }

  has(id: string): boolean {
    return this.#ids.has(id);
  }

  /** Forgets the oldest where there are too many. */
  add(id: string): void {
    this.#ids.add(id);
    if (this.#ids.size <= this.#max) return;
    for (const oldest of this.#ids) {
      this.#ids.delete(oldest);
      return;
    }
  }

  /** The last `count`, oldest first. */
  last(count: number): ReadonlySet<string> {
    return new Set([...this.#ids].slice(-count));
  }
}
