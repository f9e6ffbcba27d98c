import { BackendBusy } from '../backend-slots.ts';
import type { BackendSlots, Work } from '../backend-slots.ts';
import type { BlobFacts, CopyVerdict, Executor, Note, Verdict } from './executor.ts';

/** As another executor, each of whose work with bytes takes a place of its backend. */
export class SlottedExecutor implements Executor {
  readonly #inner: Executor;
  readonly #slots: BackendSlots;
  /** The last refusal for lack of a place. */
  busy: BackendBusy | null = null;

  constructor(inner: Executor, slots: BackendSlots) {
    this.#inner = inner;
    this.#slots = slots;
  }

  async copy(blob: BlobFacts, from: string, to: string): Promise<CopyVerdict> {
    return this.#run({ backendId: to, from, size: Number(blob.size) }, () => this.#inner.copy(blob, from, to));
  }

  async verify(blob: BlobFacts, backendId: string): Promise<Verdict> {
    return this.#run({ backendId, from: null, size: Number(blob.size) }, () => this.#inner.verify(blob, backendId));
  }

  async remove(blob: BlobFacts, backendId: string, withinMs?: number): Promise<void> {
    return this.#run({ backendId, from: null, size: 0 }, () => this.#inner.remove(blob, backendId, withinMs));
  }

  async note(blob: BlobFacts, note: Note): Promise<boolean> {
    return this.#inner.note(blob, note);
  }

  async reload(blobId: string): Promise<BlobFacts | null> {
    return this.#inner.reload(blobId);
  }

  async #run<R>(work: Work, run: () => Promise<R>): Promise<R> {
    try {
      return await this.#slots.run(work, run);
    } catch (error) {
      if (error instanceof BackendBusy) this.busy = error;
      throw error;
    }
  }
}
