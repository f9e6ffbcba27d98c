import { crc32c } from '@node-rs/crc32';
import { create } from '@bufbuild/protobuf';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { AppError } from '@stowage/common/errors';
import { backgroundContext } from '@stowage/common/rpc/context';
import { createLogger } from '@stowage/common/runtime/logger';
import { ReplicaSchema, ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { chunkBytes } from '@stowage/common/content-chunks';
import { readVerified } from './verified-reader.ts';
import type { BlobSource } from './verified-reader.ts';

const content = randomBytes(3 * chunkBytes + 17);
const checksums = checksumsOf(content);
const context = backgroundContext(new AbortController().signal);
const logger = createLogger('test', 'silent');
let reported: [string, ReplicaState][] = [];
let stores: Map<string, (start: number, end: number) => Readable>;

beforeEach(() => {
  reported = [];
  stores = new Map();
});
afterEach(() => stores.clear());

type Dependencies = Parameters<typeof readVerified>[0];

function dependencies(): Dependencies {
  const partial: Pick<Dependencies, 'readBlob' | 'logger'> & { content: Partial<Dependencies['content']> } = {
    logger,
    readBlob: async ({ backendId = '', start = 0n, end = 0n }) => {
      const store = stores.get(backendId);
      if (!store) throw new AppError('not_found', 'no such blob');
      return store(Number(start), Number(end));
    },
    content: {
      reportReplica: async ({ backendId = '', state = ReplicaState.UNSPECIFIED }) => {
        reported.push([backendId, state]);
        throw new AppError('unavailable', 'a report that fails must not fail the read');
      },
      getChunkChecksums: async ({ first = 0n, count = 0 }) => ({
        $typeName: 'stowage.catalog.v1.GetChunkChecksumsResponse',
        chunkCrc32c: checksums.subarray(Number(first) * 4, (Number(first) + count) * 4),
      }),
    },
  };
  return partial as Dependencies;
}

function source(backends: string[], inline = true): BlobSource {
  const replicas = backends.map((backendId) => create(ReplicaSchema, { backendId, key: 'blobs/ab/x' }));
  return { blobId: 'blob', size: content.length, checksums: inline ? checksums : new Uint8Array(), replicas };
}

async function read(from: BlobSource, start = 0, end = content.length): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of readVerified(dependencies(), from, { start, end }, context)) pieces.push(piece);
  return Buffer.concat(pieces);
}

function good(pieceBytes = 65_536) {
  return (start: number, end: number): Readable => Readable.from(split(content.subarray(start, end), pieceBytes));
}

function* split(bytes: Buffer, size: number): Generator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

function checksumsOf(bytes: Buffer): Buffer {
  return Buffer.concat(
    [...split(bytes, chunkBytes)].map((chunk) => {
      const sum = Buffer.alloc(4);
      sum.writeUInt32BE(crc32c(chunk));
      return sum;
    }),
  );
}

describe('reading a blob', () => {
  test.each([1, 1000, 65_536, chunkBytes, 5 * chunkBytes])(
    'gives the content whatever the pieces (%i bytes)',
    async (size) => {
      stores.set('a', good(size === 1 ? 7_919 : size));
      expect((await read(source(['a']))).equals(content)).toBe(true);
    },
  );

  test.each([
    [0, 1],
    [chunkBytes - 1, chunkBytes + 1],
    [chunkBytes, 2 * chunkBytes],
    [content.length - 1, content.length],
    [5, 3 * chunkBytes + 3],
  ])('gives exactly the range %i to %i', async (start, end) => {
    stores.set('a', good());
    expect((await read(source(['a'], false), start, end)).equals(content.subarray(start, end))).toBe(true);
  });

  test('goes on from the same byte when a replica breaks in the middle of a stream', async () => {
    stores.set('a', (start, end) =>
      Readable.from(
        (async function* () {
          yield* split(content.subarray(start, Math.min(end, chunkBytes + 500)), 4096);
          throw new Error('the cable was pulled');
        })(),
      ),
    );
    stores.set('b', good());
    expect((await read(source(['a', 'b']))).equals(content)).toBe(true);
    expect(reported).toEqual([]);
  });

  test('goes on with its only replica where a process was cut off in the middle, as long as it gets further', async () => {
    let reads = 0;
    stores.set('a', (start, end) => {
      reads += 1;
      const until = Math.min(end, start + chunkBytes + 100);
      return Readable.from(
        (function* () {
          yield content.subarray(start, until);
          if (until < end) throw new Error('socket hang up');
        })(),
      );
    });
    expect((await read(source(['a']))).equals(content)).toBe(true);
    expect(reads).toBe(3);
  });

  test('never gives a wrong chunk: the next replica serves it, and the bad one is reported corrupt', async () => {
    const damaged = Buffer.from(content);
    damaged[2 * chunkBytes + 9] = (damaged[2 * chunkBytes + 9] ?? 0) ^ 1;
    stores.set('a', (start, end) => Readable.from(split(damaged.subarray(start, end), 65_536)));
    stores.set('b', good());
    expect((await read(source(['a', 'b']))).equals(content)).toBe(true);
    expect(reported).toEqual([['a', ReplicaState.CORRUPT]]);
  });

  test('a wrong chunk outside the asked range does no harm, and one that touches it is refused', async () => {
    const damaged = Buffer.from(content);
    damaged[chunkBytes + 1] = (damaged[chunkBytes + 1] ?? 0) ^ 128;
    stores.set('a', (start, end) => Readable.from([damaged.subarray(start, end)]));
    expect((await read(source(['a']), 0, 100)).equals(content.subarray(0, 100))).toBe(true);
    await expect(read(source(['a']), chunkBytes + 500, chunkBytes + 600)).rejects.toMatchObject({
      code: 'unavailable',
    });
  });

  test('a replica that is gone or ends early is reported missing', async () => {
    stores.set('short', (start, end) => Readable.from([content.subarray(start, Math.min(end, chunkBytes))]));
    stores.set('b', good());
    expect((await read(source(['gone', 'short', 'b']))).equals(content)).toBe(true);
    expect(reported).toEqual([
      ['gone', ReplicaState.MISSING],
      ['short', ReplicaState.MISSING],
    ]);
  });

  test('a replica that hangs before its first byte, or in the middle, is left for the next', async () => {
    stores.set('hung', () => new Readable({ read: () => undefined }));
    stores.set('halts', (start, end) => {
      const pieces = split(content.subarray(start, Math.min(end, chunkBytes + 500)), 4096);
      return new Readable({
        read() {
          const next = pieces.next();
          if (!next.done) this.push(next.value);
        },
      });
    });
    stores.set('b', good());
    expect((await read(source(['hung', 'halts', 'b']))).equals(content)).toBe(true);
    expect(reported).toEqual([]);
  }, 20_000);

  test('a replica that is slow is waited for where no other is good', async () => {
    let asked = 0;
    stores.set('slow', (start, end) => {
      asked += 1;
      return asked === 1 ? new Readable({ read: () => undefined }) : good()(start, end);
    });
    expect((await read(source(['slow', 'gone']))).equals(content)).toBe(true);
    expect(reported).toEqual([['gone', ReplicaState.MISSING]]);
  }, 20_000);

  test('with no replica left it fails instead of ending', async () => {
    await expect(read(source(['gone']))).rejects.toMatchObject({ code: 'unavailable' });
    await expect(read(source([]))).rejects.toMatchObject({ code: 'unavailable' });
  });
});
