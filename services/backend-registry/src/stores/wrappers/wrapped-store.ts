import type { Readable } from 'node:stream';
import type { AppendableStore, BlobPage, BlobStore, ByteRange, ExpectedContent, ServerCopy } from '../blob-store.ts';

/** One call of a store on its way through the wrappers. */
export interface StoreCall<R> {
  name: keyof AppendableStore;
  /** May be run again after it failed, with the same effect as once. */
  repeatable: boolean;
  /** The caller's. */
  signal: AbortSignal;
  /** Whether what went wrong came from the caller's side: it cancelled, or the body that it gave broke. */
  callersFault(): boolean;
  run(): Promise<R>;
}

/** What is done around every call of a store. */
export interface Wrapper {
  around<R>(call: StoreCall<R>): Promise<R>;
}

const never = new AbortController().signal;

/** A store each of whose calls goes through wrappers, the first of them outermost. Promises what the store promises. */
export class WrappedStore implements BlobStore {
  readonly #store: BlobStore;
  readonly #wrappers: readonly Wrapper[];

  constructor(store: BlobStore, wrappers: readonly Wrapper[]) {
    this.#store = store;
    this.#wrappers = wrappers;
  }

  async identity(): Promise<string | null> {
    return this.repeatable('identity', () => this.#store.identity());
  }

  async claim(backendId: string): Promise<void> {
    return this.repeatable('claim', () => this.#store.claim(backendId));
  }

  async prepare(): Promise<void> {
    return this.repeatable('prepare', () => this.#store.prepare());
  }

  async read(key: string, range: ByteRange, signal: AbortSignal): Promise<Readable> {
    return this.repeatable('read', () => this.#store.read(key, range, signal), signal);
  }

  async stat(key: string): Promise<{ size: number } | null> {
    return this.repeatable('stat', () => this.#store.stat(key));
  }

  async delete(key: string): Promise<void> {
    return this.repeatable('delete', () => this.#store.delete(key));
  }

  async serverCopy(source: BlobStore, key: string): Promise<ServerCopy | null> {
    const inner = source instanceof WrappedStore ? source.#store : source;
    const copy = await this.repeatable('serverCopy', () => this.#store.serverCopy(inner, key));
    return copy && { make: (signal) => this.repeatable('serverCopy', () => copy.make(signal), signal) };
  }

  async list(cursor: string | null, limit: number): Promise<BlobPage> {
    return this.repeatable('list', () => this.#store.list(cursor, limit));
  }

  async sweep(before: Date): Promise<number> {
    return this.repeatable('sweep', () => this.#store.sweep(before));
  }

  /** A body can be read once only, so a write is not repeated. */
  async write(key: string, content: ExpectedContent, body: Readable, signal: AbortSignal): Promise<void> {
    return this.through({
      name: 'write',
      repeatable: false,
      signal,
      callersFault: () => signal.aborted || bodyBroke(body),
      run: () => this.#store.write(key, content, body, signal),
    });
  }

  /** Runs a call that has the same effect twice as once. */
  protected async repeatable<R>(
    name: keyof AppendableStore,
    run: () => Promise<R>,
    signal: AbortSignal = never,
  ): Promise<R> {
    return this.through({ name, repeatable: true, signal, callersFault: () => signal.aborted, run });
  }

  /** Runs a call within all wrappers. */
  protected async through<R>(call: StoreCall<R>): Promise<R> {
    const whole = this.#wrappers.reduceRight(
      (inner, wrapper) => ({ ...inner, run: () => wrapper.around(inner) }),
      call,
    );
    return whole.run();
  }
}

/** Whether a body that was to be read broke off, or was taken away. */
export function bodyBroke(body: Readable): boolean {
  return body.errored !== null || (body.destroyed && !body.readableEnded);
}
