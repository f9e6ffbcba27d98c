import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { createHash, randomBytes } from 'node:crypto';
import { mkdir, readFile, readdir, rename, rm, truncate, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { create, toBinary } from '@bufbuild/protobuf';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { ByteClient } from '@stowage/common/bytes/byte-client';
import { ByteServer } from '@stowage/common/bytes/byte-server';
import { appendStaged, readBlob } from '@stowage/common/bytes/operations';
import { newId } from '@stowage/common/ids';
import { createLogger } from '@stowage/common/runtime/logger';
import { AppendStagedRequestSchema, VerifyResult } from '@stowage/proto/stowage/backend_registry/v1/blob';
import { markerName } from './stores/identity-marker.ts';
import { blobKey } from './stores/keys.ts';
import { refuses } from './stores/test-store.ts';
import { context, startTestRegistry } from './test-registry.ts';
import type { TestRegistry, TestReplica } from './test-registry.ts';

const mebibyte = 1024 * 1024;
let registry: TestRegistry;
let replica: TestReplica;

beforeAll(async () => {
  registry = await startTestRegistry();
});
afterAll(() => registry.close());
beforeEach(async () => {
  await registry.reset();
  replica = registry.replica();
});

async function defaultId(): Promise<string> {
  const row = (await registry.rows()).find((candidate) => candidate.is_default);
  if (!row) throw new Error('there is no default backend');
  return row.id;
}

async function staged(content: Buffer): Promise<{ backendId: string; stagedId: string }> {
  const stagedId = newId();
  const { backendId } = await replica.stage({ stagedId, size: BigInt(content.length) });
  await replica.append(part(backendId, stagedId, 0, content.length), Readable.from([Buffer.from(content)]), context());
  return { backendId, stagedId };
}

function part(backendId: string, stagedId: string, offset: number, limit: number, fence = 1n) {
  return { backendId, stagedId, offset: BigInt(offset), limit: BigInt(limit), fence };
}

async function sealed(content: Buffer): Promise<{ backendId: string; key: string }> {
  const place = await staged(content);
  const size = BigInt(content.length);
  const { blob } = await replica.blobs.sealBlob({ ...place, blobId: newId(), size, waitMs: 5_000 }, context());
  return { backendId: place.backendId, key: blob?.key ?? '' };
}

describe('the default backend', () => {
  test('is made at the first start, with its marker, and is healthy', async () => {
    await replica.setUp();
    const [row] = await registry.rows();
    expect(row).toMatchObject({ name: 'local', type: 'local_directory', enabled: true, is_default: true });
    expect(row).toMatchObject({ health_status: 'healthy', health_detail: null, config: { root_path: registry.root } });
    const marker: unknown = JSON.parse(await readFile(path.join(registry.root, markerName), 'utf8'));
    expect(marker).toEqual({ backend_id: row?.id });
    expect((await readdir(registry.root)).sort()).toEqual([markerName, 'blobs', 'staging']);
  });

  test('is one when several replicas start at once', async () => {
    await Promise.all([1, 2, 3, 4, 5, 6].map(() => registry.replica().setUp()));
    expect(await registry.rows()).toHaveLength(1);
    await expect(registry.replica().setUp()).resolves.toBeUndefined();
    expect((await registry.rows())[0]).toMatchObject({ health_status: 'healthy' });
  });

  test('is finished after a crash between row and marker', async () => {
    const id = newId();
    await registry.admin.query(
      `insert into registry.backends (id, name, type, is_default, config) values ($1, 'local', 'local_directory', true, $2)`,
      [id, { root_path: registry.root }],
    );
    await replica.setUp();
    expect(await registry.rows()).toMatchObject([{ id, health_status: 'healthy' }]);
  });

  test('keeps the id of a directory that outlived its database', async () => {
    await replica.setUp();
    const id = await defaultId();
    await registry.admin.query('delete from registry.backends');
    await registry.replica().setUp();
    expect(await defaultId()).toBe(id);
  });

  test('that lost its marker is unhealthy and unavailable, and gets no new one', async () => {
    await replica.setUp();
    await rm(path.join(registry.root, markerName));
    const restarted = registry.replica();
    await restarted.setUp();
    expect(await registry.rows()).toMatchObject([{ health_status: 'unhealthy' }]);
    expect((await registry.rows())[0]?.health_detail).toMatch(/no identity marker/);
    expect(await readdir(registry.root)).not.toContain(markerName);
    await refuses(restarted.stage({ stagedId: newId() }), 'unavailable');
    await refuses(restarted.read({ backendId: await defaultId(), key: blobKey(newId()) }, context()), 'unavailable');
  });

  test('that bears another backend’s marker is unhealthy and unavailable', async () => {
    await replica.setUp();
    await writeFile(path.join(registry.root, markerName), JSON.stringify({ backend_id: newId() }));
    const restarted = registry.replica();
    await restarted.setUp();
    expect((await registry.rows())[0]?.health_detail).toMatch(/another backend/);
    await refuses(restarted.stage({ stagedId: newId() }), 'unavailable');
  });

  test('whose disk is away and comes back is healthy again without a restart', async () => {
    await replica.setUp();
    await rename(registry.root, `${registry.root}-away`);
    const restarted = registry.replica();
    await restarted.setUp();
    expect(await registry.rows()).toMatchObject([{ health_status: 'unhealthy' }]);
    await rename(`${registry.root}-away`, registry.root);
    await restarted.stage({ stagedId: newId() });
    await registry.replica().stage({ stagedId: newId() });
    expect(await registry.rows()).toMatchObject([{ health_status: 'healthy', health_detail: null }]);
  });

  test('in a folder that can’t be made does not keep the service from starting, and is set up later', async () => {
    await writeFile(path.join(registry.dataDir, 'backends'), 'in the way');
    await replica.setUp();
    expect(await registry.rows()).toMatchObject([{ health_status: 'unhealthy', marked: false }]);
    await rm(path.join(registry.dataDir, 'backends'));
    await registry.replica().setUp();
    expect(await registry.rows()).toMatchObject([{ health_status: 'healthy' }]);
  });
});

describe('backends', () => {
  test('are listed by name, page by page, with what they hold', async () => {
    await replica.setUp();
    for (const name of ['zeta', 'Alpha', 'mid']) {
      const values = [newId(), name, { bucket: name }];
      await registry.admin.query(
        `insert into registry.backends (id, name, type, config) values ($1, $2, 's3', $3)`,
        values,
      );
    }
    await registry.admin.query(
      `insert into catalog.replica_counts (backend_id, slot, replicas, bytes) values ($1, 1, 5, 90), ($1, 2, -2, -20)`,
      [await defaultId()],
    );
    const names: string[] = [];
    let cursor: string | undefined = '';
    while (cursor !== undefined) {
      const page: Awaited<ReturnType<typeof replica.backends.listBackends>> = await replica.backends.listBackends(
        { limit: 2, cursor },
        context(),
      );
      names.push(...page.items.map((item) => item.name));
      cursor = page.nextCursor;
    }
    expect(names).toEqual(['Alpha', 'local', 'mid', 'zeta']);
    const { backend } = await replica.backends.getBackend({ id: await defaultId() }, context());
    expect(backend).toMatchObject({ replicas: 3n, bytes: 70n, version: 1n, secretFields: [], isDefault: true });
    expect(backend?.config).toEqual({ root_path: registry.root });
    expect(backend?.health).toMatchObject({ status: 'healthy' });
  });

  test('an unknown one is not found, and a made-up cursor is refused', async () => {
    await refuses(replica.backends.getBackend({ id: newId() }, context()), 'not_found');
    await refuses(replica.backends.getBackend({ id: 'x' }, context()), 'not_found');
    await refuses(replica.backends.listBackends({ limit: 1, cursor: 'x' }, context()), 'validation_failed');
  });

  test('whose configuration lacks something is unavailable, and says what', async () => {
    const id = newId();
    await registry.admin.query(`insert into registry.backends (id, name, type, config) values ($1, 's', 's3', '{}')`, [
      id,
    ]);
    const refusal = await refuses(
      replica.blobs.statStaged({ backendId: id, stagedId: newId() }, context()),
      'unavailable',
    );
    expect(refusal.detail).toMatch(/has no region/);
  });
});

describe('content', () => {
  beforeEach(() => replica.setUp());

  test('is opened, appended, sealed, read, verified and removed', async () => {
    const content = randomBytes(2 * mebibyte + 3);
    const { backendId, stagedId } = await staged(content);
    expect(await replica.blobs.statStaged({ backendId, stagedId }, context())).toMatchObject({
      offset: BigInt(content.length),
    });
    const sha256 = createHash('sha256').update(content).digest();
    const blobId = newId();
    const asked = { backendId, stagedId, blobId, size: BigInt(content.length), sha256, waitMs: 5_000 };
    const { blob } = await replica.blobs.sealBlob(asked, context());
    expect(blob?.key).toBe(blobKey(blobId));
    expect(Buffer.from(blob?.sha256 ?? [])).toEqual(sha256);
    expect(blob?.chunkCrc32c).toHaveLength(12);
    expect(Buffer.from(blob?.head ?? [])).toEqual(content.subarray(0, 4_100));
    const key = blobKey(blobId);
    const stream = await replica.read({ backendId, key, start: 5n, end: BigInt(content.length) }, context());
    expect(Buffer.concat(await stream.toArray()).equals(content.subarray(5))).toBe(true);
    const claim = { backendId, key, size: BigInt(content.length), sha256 };
    expect((await replica.blobs.verifyBlob(claim, context())).result).toBe(VerifyResult.GOOD);
    await replica.blobs.deleteBlob({ backendId, key }, context());
    await replica.blobs.deleteBlob({ backendId, key }, context());
    expect((await replica.blobs.verifyBlob(claim, context())).result).toBe(VerifyResult.MISSING);
    await refuses(replica.read({ backendId, key, start: 0n, end: 1n }, context()), 'not_found');
  });

  test('that rotted is found corrupt, and what was cut off is missing, to its readers too', async () => {
    const content = randomBytes(2 * mebibyte);
    const { backendId, key } = await sealed(content);
    const claim = {
      backendId,
      key,
      size: BigInt(content.length),
      sha256: createHash('sha256').update(content).digest(),
    };
    const file = path.join(registry.root, key);
    await writeFile(file, Buffer.concat([content.subarray(0, -1), Buffer.from([(content.at(-1) ?? 0) ^ 1])]));
    expect((await replica.blobs.verifyBlob(claim, context())).result).toBe(VerifyResult.CORRUPT);
    await truncate(file, 100);
    expect((await replica.blobs.verifyBlob(claim, context())).result).toBe(VerifyResult.MISSING);
    await refuses(replica.read({ backendId, key, start: 0n, end: BigInt(content.length) }, context()), 'not_found');
  });

  test('on a disk that was unmounted a moment ago is unavailable, never missing', async () => {
    const { backendId, key } = await sealed(Buffer.from('abc'));
    const claim = { backendId, key, size: 3n, sha256: createHash('sha256').update('abc').digest() };
    await rename(registry.root, `${registry.root}-away`);
    await mkdir(registry.root);
    await refuses(replica.read({ backendId, key, start: 0n, end: 3n }, context()), 'unavailable');
    await refuses(replica.blobs.deleteBlob({ backendId, key }, context()), 'unavailable');
    await refuses(replica.blobs.verifyBlob(claim, context()), 'unavailable');
    await refuses(replica.blobs.statStaged({ backendId, stagedId: newId() }, context()), 'unavailable');
    await refuses(replica.blobs.discardStaged({ backendId, stagedId: newId() }, context()), 'unavailable');
    expect(await readdir(registry.root)).toEqual([]);
    await rm(registry.root, { recursive: true });
    await rename(`${registry.root}-away`, registry.root);
    expect((await replica.blobs.verifyBlob(claim, context())).result).toBe(VerifyResult.GOOD);
  });

  test('lands on the first wished backend that can take it, else on the default one', async () => {
    const second = newId();
    const secondRoot = path.join(registry.dataDir, 'backends', 'second');
    await mkdir(secondRoot);
    await writeFile(path.join(secondRoot, markerName), JSON.stringify({ backend_id: second }));
    await registry.admin.query(
      `insert into registry.backends (id, name, type, config) values ($1, 'second', 'local_directory', $2)`,
      [second, { root_path: secondRoot }],
    );
    const bucket = newId();
    await registry.admin.query(`insert into registry.backends (id, name, type, config) values ($1, 'b', 's3', '{}')`, [
      bucket,
    ]);
    const open = async (backendIds: string[]): Promise<string> =>
      (await replica.stage({ stagedId: newId(), backendIds })).backendId;
    expect(await open([])).toBe(await defaultId());
    expect(await open([second])).toBe(second);
    expect(await open([bucket, newId(), second])).toBe(second);
    expect(await open([bucket])).toBe(await defaultId());
    await registry.admin.query('update registry.backends set enabled = false where id = $1', [second]);
    expect(await open([second])).toBe(await defaultId());
  });

  test('opened twice is the same', async () => {
    const stagedId = newId();
    const first = await replica.stage({ stagedId, size: 3n });
    await replica.append(part(first.backendId, stagedId, 0, 3), Readable.from([Buffer.from('ab')]), context());
    expect(await replica.stage({ stagedId, size: 3n })).toEqual(first);
    expect((await replica.blobs.statStaged({ backendId: first.backendId, stagedId }, context())).offset).toBe(2n);
  });

  test('that does not fit is refused before a byte is sent', async () => {
    const huge = { stagedId: newId(), size: 2n ** 52n };
    await refuses(replica.stage(huge), 'insufficient_storage');
    const careful = registry.replica({ reserveBytes: 2 ** 52 });
    await refuses(careful.stage({ stagedId: newId() }), 'insufficient_storage');
  });

  test('that was discarded is gone, and discarding again is success', async () => {
    const place = await staged(Buffer.from('abc'));
    await replica.blobs.discardStaged(place, context());
    await replica.blobs.discardStaged(place, context());
    await refuses(replica.blobs.statStaged(place, context()), 'not_found');
  });

  test('with counts or checksums that make no sense is refused', async () => {
    const { backendId, stagedId } = await staged(Buffer.from('abc'));
    const plain = part(backendId, stagedId, 3, 10);
    const wrong = [
      { ...plain, offset: -1n },
      { ...plain, limit: 2n ** 62n },
      { ...plain, fence: -1n },
      { ...plain, checksumAlgorithm: 'md5', checksum: Buffer.alloc(16) },
    ];
    for (const request of wrong) {
      await refuses(replica.append(request, Readable.from([]), context()), 'validation_failed');
    }
    const right = { ...plain, checksumAlgorithm: 'sha1', checksum: createHash('sha1').update('de').digest() };
    expect((await replica.append(right, Readable.from([Buffer.from('de')]), context())).offset).toBe(5n);
  });
});

describe('over the byte port', () => {
  let server: ByteServer;
  let client: ByteClient;
  let port: number;

  beforeEach(async () => {
    await replica.setUp();
    server = new ByteServer(replica.byteEndpoints, createLogger('test', 'silent'));
    port = await server.listen('127.0.0.1', 0);
    client = new ByteClient(`http://127.0.0.1:${port}`);
  });

  afterEach(async () => {
    await client.close();
    await server.close(100);
  });

  test('content goes in and comes out, and a refusal reaches the sender of a long body', async () => {
    const content = randomBytes(5 * mebibyte);
    const stagedId = newId();
    const { backendId } = await replica.stage({ stagedId });
    const append = client.uploader(appendStaged);
    const first = await append(
      part(backendId, stagedId, 0, content.length),
      Readable.from([Buffer.from(content)]),
      context(),
    );
    expect(first.offset).toBe(BigInt(content.length));
    const again = append(
      part(backendId, stagedId, 0, content.length),
      Readable.from([Buffer.from(content)]),
      context(),
    );
    expect((await refuses(again, 'offset_conflict')).members).toEqual({ offset: content.length });
    const size = BigInt(content.length);
    const { blob } = await replica.blobs.sealBlob(
      { backendId, stagedId, blobId: newId(), size, waitMs: 5_000 },
      context(),
    );
    const range = { backendId, key: blob?.key ?? '', start: 0n, end: size };
    const stream = await client.downloader(readBlob)(range, context());
    expect(Buffer.concat(await stream.toArray()).equals(content)).toBe(true);
  });

  test('after a connection was cut the upload goes on from what arrived', async () => {
    const content = randomBytes(3 * mebibyte);
    const stagedId = newId();
    const { backendId } = await replica.stage({ stagedId });
    const offset = async (): Promise<number> =>
      Number((await replica.blobs.statStaged({ backendId, stagedId }, context())).offset);
    const socket = sendHalf(part(backendId, stagedId, 0, content.length), content.subarray(0, 2 * mebibyte + 5));
    let arrived = await offset();
    while (arrived < mebibyte) arrived = await offset();
    socket.destroy();
    const append = client.uploader(appendStaged);
    const rest = async (at: number): Promise<number> => {
      const body = Readable.from([Buffer.from(content.subarray(at))]);
      return Number((await append(part(backendId, stagedId, at, content.length, 2n), body, context())).offset);
    };
    // The broken writer may have got further than was seen above: then the refusal says how far.
    const end = await rest(arrived).catch(async (error: unknown) => {
      const { members } = await refuses(Promise.reject(error), 'offset_conflict');
      return rest(Number(members['offset']));
    });
    expect(end).toBe(content.length);
    const size = BigInt(content.length);
    const { blob } = await replica.blobs.sealBlob(
      { backendId, stagedId, blobId: newId(), size, waitMs: 5_000 },
      context(),
    );
    expect(Buffer.from(blob?.sha256 ?? [])).toEqual(createHash('sha256').update(content).digest());
  });

  function sendHalf(request: MessageInitShape<typeof AppendStagedRequestSchema>, bytes: Buffer): Socket {
    const message = toBinary(AppendStagedRequestSchema, create(AppendStagedRequestSchema, request));
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => undefined);
    socket.write(`POST /append-staged HTTP/1.1\r\nhost: x\r\n`);
    socket.write(`stowage-request: ${Buffer.from(message).toString('base64url')}\r\n`);
    socket.write(`content-length: ${request.limit}\r\n\r\n`);
    socket.write(bytes);
    return socket;
  }
});
