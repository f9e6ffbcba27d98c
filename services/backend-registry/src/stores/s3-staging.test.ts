import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { HeadObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { AppError } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import { CuttingProxy } from '@stowage/tests/support/cutting-proxy';
import { Random } from '@stowage/tests/support/random';
import { describeWith, s3Server } from '@stowage/tests/support/real-servers';
import type { AppendableStore } from './blob-store.ts';
import { usualLimits } from './idle-limit.ts';
import { blobKey } from './keys.ts';
import { segmentSizeAt } from './s3-append.ts';
import { assemble } from './s3-assemble.ts';
import { connectS3 } from './s3-connection.ts';
import { S3Staging } from './s3-staging.ts';
import { S3Store } from './s3-store.ts';
import { Segments } from './s3-segments.ts';
import { refusal } from './store-refusal.ts';
import { agents, s3Place } from './s3-test-server.ts';
import type { S3Place } from './s3-test-server.ts';
import { digestOfBlob, seededContent, writeContent } from './test-content.ts';
import { append, brokenBody, never, refuses, seal, slowWriter } from './test-store.ts';

const mebibyte = 1024 * 1024;

test('even the longest upload is of few segments', () => {
  let segments = 0;
  for (let at = 0; at < 5 * 1024 ** 4; at += segmentSizeAt(at)) segments += 1;
  expect(segments).toBeLessThan(6_000);
});

describeWith('S3', s3Server(), (server) => {
  let place: S3Place;
  let store: AppendableStore;

  beforeEach(async () => {
    place = await s3Place(server);
    store = await S3Store.open(place.config, agents);
  });

  afterEach(() => place.client.destroy());

  const segmentsOf = async (id: string): Promise<number[]> =>
    Object.entries(await place.objects()).flatMap(([key, size]) =>
      /\/\d{16}$/.test(key) && key.includes(id) ? [size] : [],
    );

  test('an upload in many small bodies is kept in few objects and sealed as it was', async () => {
    const content = seededContent(23 * mebibyte + 5, 1);
    const id = newId();
    await store.createStaged(id);
    for (let at = 0; at < content.size; at += 700_000) {
      const end = Math.min(content.size, at + 700_000);
      expect(await append(store, id, at, content.slice(at, end))).toBe(end);
    }
    expect((await segmentsOf(id)).length).toBeLessThan(6);
    const key = await seal(store, id);
    expect((await digestOfBlob(store, key, 0, content.size)).equals(content.sha256)).toBe(true);
    expect(await place.objects()).toEqual({ [key]: content.size });
  });

  test('one long body counts segment by segment, and what a killed process wrote is there for the next one', async () => {
    const content = seededContent(20 * mebibyte, 1);
    const id = newId();
    await store.createStaged(id);
    const writer = slowWriter(store, id, 0, 1n);
    for (let at = 0; at < 18; at += 1) await writer.send(content.slice(at * mebibyte, (at + 1) * mebibyte));
    // Another process knows nothing of the claims of this one.
    const restarted = await S3Store.open(place.config, agents);
    const offset = (await restarted.stagedOffset(id)) ?? 0;
    expect(offset).toBe(16 * mebibyte);
    expect(await append(restarted, id, offset, content.slice(offset, content.size))).toBe(content.size);
    writer.end();
    await refuses(writer.result, 'locked');
    const key = await seal(restarted, id);
    expect((await digestOfBlob(restarted, key, 0, content.size)).equals(content.sha256)).toBe(true);
    expect(await place.objects()).toEqual({ [key]: content.size });
  });

  test('of two processes that write at once the content of one stays, and the other is told', async () => {
    const other = await S3Store.open(place.config, agents);
    for (const start of [0, 3]) {
      const id = newId();
      await store.createStaged(id);
      if (start > 0) await append(store, id, 0, 'abc');
      const bodies = [Buffer.alloc(1000, 'x'), Buffer.alloc(2000, 'y')];
      const writers = [store, other].map((one, at) => append(one, id, start, bodies[at] ?? ''));
      const results = await Promise.allSettled(writers);
      const won = results.filter((result) => result.status === 'fulfilled');
      expect(won).toHaveLength(1);
      expect(await other.stagedOffset(id)).toBe(won[0]?.value);
      for (const result of results) {
        if (result.status === 'rejected') expect(result.reason).toBeInstanceOf(AppError);
      }
    }
  });

  test('a long body with a checksum counts as a whole, also on top of a small beginning', async () => {
    const content = seededContent(20 * mebibyte + 3, 1);
    const rest = content.slice(3, content.size);
    const id = newId();
    await store.createStaged(id);
    await append(store, id, 0, content.slice(0, 3));
    const checksum = { algorithm: 'sha256', digest: createHash('sha256').update(rest).digest() } as const;
    await refuses(append(store, id, 3, brokenBody(rest), { checksum }), 'unavailable');
    await refuses(append(store, id, 3, rest.subarray(1), { checksum }), 'chunk_checksum_mismatch');
    expect(await segmentsOf(id)).toEqual([3]);
    expect(await append(store, id, 3, rest, { checksum })).toBe(content.size);
    const key = await seal(store, id);
    expect((await digestOfBlob(store, key, 0, content.size)).equals(content.sha256)).toBe(true);
    expect(await place.objects()).toEqual({ [key]: content.size });
  });

  test('what was being removed when its process was killed is gone', async () => {
    for (const left of [[0], [], [0, 8]]) {
      const id = newId();
      for (const name of ['over', ...left.map((start) => String(start).padStart(16, '0'))]) {
        const put = { Bucket: place.bucket, Key: place.keyOf(`staging/${id}/${name}`), Body: '12345678' };
        await place.client.send(new PutObjectCommand(put));
      }
      expect(await store.stagedOffset(id)).toBeNull();
      expect(await place.objects()).toEqual({});
    }
  });

  test('content of which a piece is missing is never sealed as if it were whole', async () => {
    const id = newId();
    await store.createStaged(id);
    const put = { Bucket: place.bucket, Key: place.keyOf(`staging/${id}/0000000000000008`), Body: 'x' };
    await place.client.send(new PutObjectCommand(put));
    await refuses(store.stagedOffset(id), 'unavailable');
    await refuses(append(store, id, 0, 'x'), 'unavailable');
    await refuses(
      store.seal(id, blobKey(newId()), async () => undefined),
      'unavailable',
    );
    await store.discard(id);
  });

  test('many segments become one, and large ones are copied in ranges', async () => {
    const s3 = await connectS3(place.config, agents, usualLimits);
    const staging = new S3Staging(s3, 3);
    const content = seededContent(42 * mebibyte, 1);
    const id = newId();
    await staging.create(id);
    const plain = { stagedId: id, limit: content.size, fence: 1n, create: false, checksum: null };
    const observer = { start: () => undefined, bytes: () => undefined, settle: () => undefined };
    for (let at = 0; at < content.size; at += 6 * mebibyte) {
      const body = Readable.from([content.slice(at, at + 6 * mebibyte)]);
      await staging.append({ ...plain, offset: at, observer }, body, never);
    }
    expect((await segmentsOf(id)).length).toBeLessThanOrEqual(4);
    const found = await new Segments(s3).find(id);
    expect(found?.offset).toBe(content.size);
    const key = blobKey(newId());
    await assemble(s3, found?.segments ?? [], place.keyOf(key), { copyBytes: 7 * mebibyte, resume: false });
    expect((await digestOfBlob(store, key, 0, content.size)).equals(content.sha256)).toBe(true);
    await staging.discard(id);
    expect(await place.objects()).toEqual({ [key]: content.size });
  });

  test('a copy that was cut off goes on with the parts that are there, and only with those that fit', async () => {
    const s3 = await connectS3(place.config, agents, usualLimits);
    const content = seededContent(42 * mebibyte, 1);
    const from = blobKey(newId());
    await writeContent(store, from, content);
    const head = await place.client.send(new HeadObjectCommand({ Bucket: place.bucket, Key: place.keyOf(from) }));
    const pieces = [{ objectKey: place.keyOf(from), size: content.size, etag: head.ETag ?? '' }];
    let copies = 0;
    let most = 0;
    s3.client.middlewareStack.add(
      (next, context) => (args) => {
        if (context['commandName'] === 'UploadPartCopyCommand') {
          if (copies === most) throw refusal('no more', 'for a test');
          copies += 1;
        }
        return next(args);
      },
      { step: 'initialize' },
    );
    const copyTo = async (key: string, copyMiB: number, mostCopies: number): Promise<number> => {
      copies = 0;
      most = mostCopies;
      await assemble(s3, pieces, place.keyOf(key), { copyBytes: copyMiB * mebibyte, resume: true });
      return copies;
    };
    const [key, other] = [blobKey(newId()), blobKey(newId())];
    for (const one of [key, other]) await refuses(copyTo(one, 6, 4), 'unavailable');
    expect(await copyTo(key, 6, Infinity)).toBe(3);
    expect(await copyTo(other, 7, Infinity)).toBe(6);
    for (const one of [key, other]) {
      expect((await digestOfBlob(store, one, 0, content.size)).equals(content.sha256)).toBe(true);
    }
    // It throws where a multipart upload was left.
    expect(Object.keys(await place.objects())).toHaveLength(3);
  });

  test('content that is read back for its seal does not begin anew with each connection that breaks', async () => {
    const s3 = await connectS3(place.config, agents, usualLimits);
    const content = seededContent(20 * mebibyte, 5);
    const id = newId();
    await store.createStaged(id);
    await append(store, id, 0, content.slice(0, content.size));
    let breaks = 0;
    async function* broken(body: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
      let left = 3_000_000;
      for await (const piece of body) {
        yield piece.subarray(0, left);
        left -= piece.length;
        if (left > 0) continue;
        breaks += 1;
        throw new Error('socket hang up');
      }
    }
    s3.client.middlewareStack.add(
      (next) => async (args) => {
        const result = await next(args);
        const { output } = result;
        if ('Body' in output && output.Body instanceof Readable) {
          Object.assign(output, { Body: Readable.from(broken(output.Body), { objectMode: false }) });
        }
        return result;
      },
      { step: 'initialize' },
    );
    const hash = createHash('sha256');
    await new S3Staging(s3).seal(id, place.keyOf(blobKey(newId())), async (staged, signal) => {
      for await (const piece of await staged.read(signal)) hash.update(piece);
    });
    // Each of the segments broke twice: of 8 MiB 3,000,000 bytes come at a time.
    expect(breaks).toBe(5);
    expect(hash.digest().equals(content.sha256)).toBe(true);
  });

  test('whatever connections are cut, an upload goes on where the store says and comes out right', async () => {
    const random = new Random(11);
    let calm = false;
    const proxy = await CuttingProxy.start(server.url, () => (calm ? null : random.integer(0, 9_000_000)));
    const shaky = await S3Store.open({ ...place.config, endpoint: proxy.url }, agents);
    const content = seededContent(30 * mebibyte + 7, 3);
    const id = newId();
    let offset = 0;
    let acknowledged = 0;
    await store.createStaged(id);
    for (let round = 0; offset < content.size; round += 1) {
      calm = round > 60;
      const end = Math.min(content.size, offset + random.integer(1, 12_000_000));
      const told = await append(shaky, id, offset, content.slice(offset, end)).catch(() => null);
      acknowledged = Math.max(acknowledged, told ?? 0);
      offset = (await store.stagedOffset(id)) ?? -1;
      expect(offset).toBeGreaterThanOrEqual(acknowledged);
    }
    expect(proxy.cuts).toBeGreaterThan(0);
    const key = await seal(store, id);
    expect((await digestOfBlob(store, key, 0, content.size)).equals(content.sha256)).toBe(true);
    await proxy.close();
  });
});
