import type { Readable } from 'node:stream';
import type { Append, AppendableStore, StagedContent, StagedPage } from '../blob-store.ts';
import { bodyBroke, WrappedStore } from './wrapped-store.ts';
import type { Wrapper } from './wrapped-store.ts';

/** As WrappedStore, for a store that content can grow in. */
export class WrappedAppendableStore extends WrappedStore implements AppendableStore {
  readonly #store: AppendableStore;

  constructor(store: AppendableStore, wrappers: readonly Wrapper[]) {
    super(store, wrappers);
    this.#store = store;
  }

  async createStaged(stagedId: string): Promise<void> {
    return this.repeatable('createStaged', () => this.#store.createStaged(stagedId));
  }

  async stagedOffset(stagedId: string): Promise<number | null> {
    return this.repeatable('stagedOffset', () => this.#store.stagedOffset(stagedId));
  }

  async discard(stagedId: string): Promise<void> {
    return this.repeatable('discard', () => this.#store.discard(stagedId));
  }

  async listStaged(cursor: string | null, limit: number): Promise<StagedPage> {
    return this.repeatable('listStaged', () => this.#store.listStaged(cursor, limit));
  }

  /** Asks nobody over the network, so nothing is around it. */
  async freeBytes(enough: number): Promise<number> {
    return this.#store.freeBytes(enough);
  }

  async append(append: Append, body: Readable, signal: AbortSignal): Promise<number> {
    return this.through({
      name: 'append',
      repeatable: false,
      signal,
      callersFault: () => signal.aborted || bodyBroke(body),
      run: () => this.#store.append(append, body, signal),
    });
  }

  /** What `check` throws is the caller's own. */
  async seal(
    stagedId: string,
    key: string,
    check: (content: StagedContent, signal: AbortSignal) => Promise<void>,
  ): Promise<boolean> {
    let checkFailed = false;
    const watched = async (content: StagedContent, signal: AbortSignal): Promise<void> => {
      await check(content, signal).catch((error: unknown) => {
        checkFailed = true;
        throw error;
      });
    };
    return this.through({
      name: 'seal',
      repeatable: false,
      signal: new AbortController().signal,
      callersFault: () => checkFailed,
      run: () => this.#store.seal(stagedId, key, watched),
    });
  }
}
