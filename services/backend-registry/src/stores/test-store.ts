import { expect } from '@jest/globals';
import { Readable } from 'node:stream';
import { AppError } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import type { Append, AppendableStore, BlobStore } from './blob-store.ts';
import { blobKey } from './keys.ts';

/** A signal that is never aborted. */
export const never = new AbortController().signal;

const nobody = { start: () => undefined, bytes: () => undefined, settle: () => undefined };

/** Matches no body. */
export const wrongChecksum: NonNullable<Append['checksum']> = { algorithm: 'sha256', digest: Buffer.alloc(32) };

/** Appends in one go, with fence 1 and no limit unless told. */
export async function append(
  store: AppendableStore,
  stagedId: string,
  offset: number,
  body: string | Buffer | Readable,
  options: Partial<Append> = {},
  signal: AbortSignal = never,
): Promise<number> {
  const stream = body instanceof Readable ? body : Readable.from(body.length > 0 ? [Buffer.from(body)] : []);
  const plain = {
    stagedId,
    offset,
    limit: Number.MAX_SAFE_INTEGER,
    fence: 1n,
    create: false,
    checksum: null,
    observer: nobody,
  };
  return store.append({ ...plain, ...options }, stream, signal);
}

/** A writer whose body goes on until `end`; `send` resolves when the store has taken the bytes. */
export function slowWriter(
  store: AppendableStore,
  stagedId: string,
  offset: number,
  fence: bigint,
  options: Partial<Append> = {},
  signal: AbortSignal = never,
): { send(bytes: string | Buffer): Promise<void>; end(): void; result: Promise<number> } {
  let wanted = Promise.withResolvers<void>();
  // With a buffer of one byte, being asked for more means that all before was taken.
  const body = new Readable({ highWaterMark: 1, read: () => wanted.resolve() });
  const result = append(store, stagedId, offset, body, { fence, ...options }, signal);
  result.catch(() => undefined);
  const send = async (bytes: string | Buffer): Promise<void> => {
    await wanted.promise;
    wanted = Promise.withResolvers();
    body.push(Buffer.from(bytes));
    await wanted.promise;
  };
  return { send, end: () => body.push(null), result };
}

export function brokenBody(content: Buffer): Readable {
  return Readable.from(
    (function* () {
      yield content.subarray(0, 10);
      yield content.subarray(10);
      throw new Error('socket hang up');
    })(),
  );
}

export async function staged(store: AppendableStore, content: string | Buffer): Promise<string> {
  const id = newId();
  await store.createStaged(id);
  if (content.length > 0) await append(store, id, 0, content);
  return id;
}

export async function seal(store: AppendableStore, stagedId: string): Promise<string> {
  const key = blobKey(newId());
  expect(await store.seal(stagedId, key, async () => undefined)).toBe(true);
  return key;
}

export async function sealed(store: AppendableStore, content: Buffer): Promise<string> {
  return seal(store, await staged(store, content));
}

export async function readAll(
  store: BlobStore,
  key: string,
  start: number,
  end: number,
  signal: AbortSignal = never,
): Promise<Buffer> {
  return Buffer.concat(await (await store.read(key, { start, end }, signal)).toArray());
}

/** Expects an AppError with this code, and gives it. */
export async function refuses(promise: Promise<unknown>, code: string): Promise<AppError> {
  const thrown: unknown = await promise.then(
    () => null,
    (error: unknown) => error,
  );
  if (!(thrown instanceof AppError)) throw new Error(`expected ${code}, got ${String(thrown)}`, { cause: thrown });
  expect(thrown.code).toBe(code);
  return thrown;
}
