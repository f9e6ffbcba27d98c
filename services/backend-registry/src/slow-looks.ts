/** A look that failed sooner, in ms, costs nobody a wait; after another one nobody looks for a while. */
const slow = { fromMs: 100, restMs: 1_000 };

/** How a look that took its time failed, and when the next one may begin. */
interface SlowLook {
  error: unknown;
  until: number;
}

/** Looks at backends that took their time before they failed: of one that hangs some wait, the others are told at once. */
export class SlowLooks {
  readonly #looks = new Map<string, SlowLook>();

  /** Throws what the last look at a backend failed with, where that was slow: while the next one runs, and for a while. */
  refuse(backendId: string, isRunning: boolean): void {
    const look = this.#looks.get(backendId);
    if (look && (isRunning || look.until > performance.now())) throw look.error;
  }

  /** Looks, and notes how long that took where it fails. */
  async timed<R>(backendId: string, look: () => Promise<R>): Promise<R> {
    const startedAt = performance.now();
    try {
      const found = await look();
      this.#looks.delete(backendId);
      return found;
    } catch (error) {
      const tookMs = performance.now() - startedAt;
      if (tookMs < slow.fromMs) this.#looks.delete(backendId);
      else this.#looks.set(backendId, { error, until: performance.now() + Math.max(tookMs, slow.restMs) });
      throw error;
    }
  }

  /** Null is all of them. */
  forget(backendId: string | null): void {
    if (backendId === null) this.#looks.clear();
    else this.#looks.delete(backendId);
  }
}
