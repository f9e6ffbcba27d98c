import { crc32c } from '@node-rs/crc32';
import { free } from '@stowage/common/bytes/free';
import { chunkBytes } from '@stowage/common/content-chunks';
import { toAppError, unavailable } from '@stowage/common/errors';
import type { AppError } from '@stowage/common/errors';
import type { CallContext } from '@stowage/common/rpc/context';
import { ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import type { Replica } from '@stowage/proto/stowage/catalog/v1/node';
import type { Logger } from '@stowage/common/runtime/logger';
import type { AppDependencies } from '../app-types.ts';
import { Patience } from './patience.ts';
import type { ByteRange } from './ranges.ts';

const checksumsPerCall = 4096;

/** How long a replica may take for a chunk while there are others. */
const patienceMs = 3_000;

/** A blob and where it can be read. */
export interface BlobSource {
  blobId: string;
  size: number;
  /** CRC-32C of each chunk where they came along, else empty: they are fetched as they are needed. */
  checksums: Uint8Array;
  /** Best first. */
  replicas: readonly Replica[];
}

/** What reading a blob needs. */
export type ReaderDependencies = Pick<AppDependencies, 'content' | 'readBlob'> & { logger: Logger };

/**
 * Reads a range of a blob and gives it piece by piece, each checked before it is given: wrong bytes never leave. A
 * replica that fails is reported, and the next one goes on from the same byte; one that is slow, or broke after a part,
 * gets another turn, for as long as it takes, after the others. Throws `unavailable` when none is left.
 * Each piece is its receiver's to free.
 */
export async function* readVerified(
  dependencies: ReaderDependencies,
  source: BlobSource,
  range: ByteRange,
  context: CallContext,
): AsyncGenerator<Buffer, void, void> {
  const checksums = new Checksums(dependencies, source, context);
  let index = Math.floor(range.start / chunkBytes);
  const last = Math.ceil(range.end / chunkBytes);
  const limitMs = source.replicas.length > 1 ? patienceMs : null;
  const turns: { replica: Replica; limitMs: number | null }[] = source.replicas.map((replica) => ({
    replica,
    limitMs,
  }));
  for (const { replica, limitMs } of turns) {
    const patience = new Patience(limitMs, context.signal);
    const begunAt = index;
    try {
      for await (const chunk of chunksOf(dependencies, source, replica, { index, last, patience }, context)) {
        if (crc32c(chunk) !== (await checksums.of(index))) throw new BadReplica(ReplicaState.CORRUPT);
        const offset = index * chunkBytes;
        index += 1;
        yield cut(chunk, Math.max(0, range.start - offset), Math.min(chunk.length, range.end - offset));
      }
      return;
    } catch (error) {
      if (context.signal.aborted) throw error;
      // One that broke on its way may have been cut off with its process: another one reads on.
      const broke = index > begunAt && !(error instanceof BadReplica);
      if (patience.isOver || broke) turns.push({ replica, limitMs: null });
      await passOver(dependencies, source, replica, error, context);
    } finally {
      patience.end();
    }
  }
  throw noGoodCopy();
}

/** What a client is told where no replica can be read. */
export function noGoodCopy(): AppError {
  return unavailable('No good copy of this content can be read just now.');
}

/** A part of a chunk in memory of its own; the chunk itself is gone. */
function cut(chunk: Buffer, start: number, end: number): Buffer {
  if (end - start === chunk.length) return chunk;
  const part = Buffer.allocUnsafeSlow(end - start);
  chunk.copy(part, 0, start, end);
  free(chunk);
  return part;
}

/** The first `end` bytes of a blob in one piece, each checked; for what is known to be small. Throws as readVerified does. */
export async function readWhole(
  dependencies: ReaderDependencies,
  source: BlobSource,
  end: number,
  context: CallContext,
): Promise<Buffer> {
  const pieces: Buffer[] = [];
  if (end > 0)
    for await (const piece of readVerified(dependencies, source, { start: 0, end }, context)) pieces.push(piece);
  const whole = Buffer.concat(pieces);
  pieces.forEach(free);
  return whole;
}

class BadReplica extends Error {
  readonly state: ReplicaState;

  constructor(state: ReplicaState) {
    super('a replica does not hold what it should');
    this.state = state;
  }
}

/** Whole chunks of one replica from chunk `index` up to, not including, chunk `last`. */
async function* chunksOf(
  { readBlob }: ReaderDependencies,
  source: BlobSource,
  replica: Replica,
  { index: first, last, patience }: { index: number; last: number; patience: Patience },
  context: CallContext,
): AsyncGenerator<Buffer, void, void> {
  const end = Math.min(last * chunkBytes, source.size);
  let position = first * chunkBytes;
  const range = { start: BigInt(position), end: BigInt(end) };
  patience.begin();
  const stream = await patience.of(
    readBlob({ backendId: replica.backendId, key: replica.key, ...range }, { ...context, signal: patience.signal }),
  );
  let pieces: Buffer[] = [];
  let gathered = 0;
  for await (const piece of stream as AsyncIterable<Buffer>) {
    for (let rest = piece; rest.length > 0;) {
      const wanted = Math.min(chunkBytes, end - position) - gathered;
      const part = rest.subarray(0, wanted);
      rest = rest.subarray(part.length);
      pieces.push(part);
      gathered += part.length;
      if (part.length < wanted) break;
      patience.end();
      yield joined(pieces, gathered);
      patience.begin();
      position += gathered;
      pieces = [];
      gathered = 0;
    }
  }
  if (position < end) throw new BadReplica(ReplicaState.MISSING);
}

function joined(pieces: readonly Buffer[], length: number): Buffer {
  const [only] = pieces;
  if (pieces.length === 1 && only) return only;
  const chunk = Buffer.concat(pieces, length);
  pieces.forEach(free);
  return chunk;
}

async function passOver(
  { content, logger }: ReaderDependencies,
  source: BlobSource,
  replica: Replica,
  error: unknown,
  context: CallContext,
): Promise<void> {
  const state = error instanceof BadReplica ? error.state : stateOf(toAppError(error));
  const facts = { blob_id: source.blobId, backend_id: replica.backendId, request_id: context.requestId };
  logger.warn({ ...facts, err: error }, 'A replica was passed over.');
  if (state === null) return;
  try {
    await content.reportReplica({ blobId: source.blobId, backendId: replica.backendId, state }, context);
  } catch (reportError) {
    logger.error({ ...facts, err: reportError }, 'A bad replica could not be reported.');
  }
}

/** What is not there is missing; what can't be reached just now says nothing of the replica. */
function stateOf(error: AppError): ReplicaState | null {
  return error.code === 'not_found' ? ReplicaState.MISSING : null;
}

/** The chunk checksums of a blob, fetched run by run where the blob is large. */
class Checksums {
  readonly #dependencies: ReaderDependencies;
  readonly #source: BlobSource;
  readonly #context: CallContext;
  #first = 0;
  #run: DataView;

  constructor(dependencies: ReaderDependencies, source: BlobSource, context: CallContext) {
    this.#dependencies = dependencies;
    this.#source = source;
    this.#context = context;
    this.#run = viewOf(source.checksums);
  }

  async of(index: number): Promise<number> {
    if (index < this.#first || (index - this.#first) * 4 >= this.#run.byteLength) await this.#fetch(index);
    return this.#run.getUint32((index - this.#first) * 4);
  }

  async #fetch(first: number): Promise<void> {
    const request = { blobId: this.#source.blobId, first: BigInt(first), count: checksumsPerCall };
    const { chunkCrc32c } = await this.#dependencies.content.getChunkChecksums(request, this.#context);
    if (chunkCrc32c.length === 0) throw new Error(`blob ${this.#source.blobId} has no checksum for chunk ${first}`);
    this.#first = first;
    this.#run = viewOf(chunkCrc32c);
  }
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
