import { createHash, randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { AppError, unavailable } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import type { Fault } from './backend-health.ts';
import type { BlobStore } from './stores/blob-store.ts';
import { unreachable } from './stores/connection-faults.ts';
import { blobKey } from './stores/keys.ts';
import { isCertain, MarkerFault } from './stores/open-store.ts';

/** How long a step may take: a hung disk or server must not hang who checks it. */
const stepMs = 5_000;

const size = 4_096;
const range = { start: 1_000, end: 3_000 };

/** A step of a check that failed, and why. */
export class StepFault extends Error {
  override readonly name = 'StepFault';
  readonly fault: Fault;

  constructor(fault: Fault, cause: unknown) {
    super(`${fault.step}: ${fault.detail}`, { cause });
    this.fault = fault;
  }
}

/** Runs a step of a check within its time. Throws StepFault, or what is no AppError. */
export async function step<R>(name: string, work: (signal: AbortSignal) => Promise<R>): Promise<R> {
  const stop = new AbortController();
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    const error = unavailable(unreachable);
    stop.abort(error);
    late.reject(error);
  }, stepMs);
  try {
    return await Promise.race([work(stop.signal), late.promise]);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    const failed = error instanceof MarkerFault ? 'marker' : name;
    throw new StepFault({ step: failed, detail: error.detail, certain: isCertain(error) }, error);
  } finally {
    clearTimeout(timer);
    late.promise.catch(() => undefined);
  }
}

/** Writes a blob of random bytes, reads it, whole and in part, compares, and deletes it again. Throws StepFault. */
export async function probe(store: BlobStore): Promise<void> {
  const key = blobKey(newId());
  const bytes = randomBytes(size);
  const content = { size, sha256: createHash('sha256').update(bytes).digest() };
  try {
    // A copy: whoever writes it may free its pieces.
    await step('write', (signal) => store.write(key, content, Readable.from([Buffer.from(bytes)]), signal));
    const whole = await step('read', (signal) => readAll(store, key, { start: 0, end: size }, signal));
    await step('compare', async () => requireEqual(whole, bytes));
    const part = await step('range', (signal) => readAll(store, key, range, signal));
    await step('compare', async () => requireEqual(part, bytes.subarray(range.start, range.end)));
  } catch (error) {
    await step('delete', () => store.delete(key)).catch(() => undefined);
    throw error;
  }
  await step('delete', () => store.delete(key));
}

async function readAll(
  store: BlobStore,
  key: string,
  wanted: { start: number; end: number },
  signal: AbortSignal,
): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let length = 0;
  const body = await store.read(key, wanted, signal).catch((error: unknown) => {
    if (!(error instanceof AppError) || error.code !== 'not_found') throw error;
    throw unavailable('What was just written is not there.', error);
  });
  for await (const piece of body) {
    const bytes = Buffer.from(piece);
    length += bytes.length;
    if (length > size) throw unavailable('The backend sent more than was asked for.');
    pieces.push(bytes);
  }
  return Buffer.concat(pieces);
}

function requireEqual(read: Buffer, written: Buffer): void {
  if (!read.equals(written)) throw unavailable('The backend gave other bytes than were written.');
}
