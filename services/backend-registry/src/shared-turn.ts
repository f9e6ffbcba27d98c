/** Runs the same work for many: those who ask while it runs share the next turn, which begins after they asked. */
export class SharedTurn<R> {
  readonly #work: () => Promise<R>;
  #running: Promise<unknown> | null = null;
  #next: Promise<R> | null = null;

  constructor(work: () => Promise<R>) {
    this.#work = work;
  }

  async run(): Promise<R> {
    this.#next ??= this.#after(this.#running);
    return this.#next;
  }

  async #after(running: Promise<unknown> | null): Promise<R> {
    await running?.catch(() => undefined);
    const own = this.#work();
    this.#running = own;
    this.#next = null;
    return own;
  }
}
