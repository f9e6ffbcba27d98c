import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import { NodeKind, OnConflict, ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import type { Node } from '@stowage/proto/stowage/catalog/v1/node';
import { backendId, codeOf, commitRequest, eventsOf, idOf, startTestCatalog } from './test-catalog.ts';
import type { TestCatalog } from './test-catalog.ts';

const secondId = '01900000-0000-7000-8000-00000000000c';
let catalog: TestCatalog;
beforeAll(async () => {
  catalog = await startTestCatalog();
  await catalog.admin.query(
    "insert into registry.backends (id, name, type, config) values ($1, 'bucket', 's3', '{}')",
    [secondId],
  );
});
afterAll(() => catalog.close());
beforeEach(() => catalog.reset());

const at = () => catalog.context();

async function replicaStates(): Promise<string[]> {
  const { rows } = await catalog.admin.query('select state from catalog.replicas order by backend_id');
  return rows.map((row) => row.state);
}

async function jobs(kind: string): Promise<unknown[]> {
  const { rows } = await catalog.admin.query('select params from jobs.jobs where kind = $1 order by id', [kind]);
  return rows.map((row) => row.params);
}

async function recycle(node: Node): Promise<void> {
  await catalog.tree.recycleNode(idOf(node), at());
}

describe('committing a file', () => {
  test('makes file, blob, replicas and event, and answers them again', async () => {
    const request = commitRequest('a.txt', rootDirectoryId);
    const first = await catalog.content.commitFile(request, at());
    expect(first).toMatchObject({ created: true, file: { id: request.fileId, path: '/a.txt', version: 1n } });
    expect(Buffer.from(first.file?.file?.sha256 ?? [])).toEqual(request.blob.sha256);
    expect(await catalog.content.commitFile(request, at())).toEqual({ ...first, created: false });
    expect(await replicaStates()).toEqual(['available']);
    expect(await eventsOf(catalog.db)).toEqual(['created a.txt']);
  });

  test('again answers the file as it is now, wherever it is and whatever became of its directory', async () => {
    const top = await catalog.directory('top');
    const request = commitRequest('a.txt', top.id);
    await catalog.content.commitFile(request, at());
    await catalog.tree.renameNode(
      { id: request.fileId, kind: NodeKind.FILE, name: 'b.txt', onConflict: OnConflict.FAIL },
      at(),
    );
    await recycle(top);
    const again = await catalog.content.commitFile(request, at());
    expect(again).toMatchObject({ created: false, file: { path: '/top/b.txt', version: 2n, recycled: true } });
    const other = { ...commitRequest('c.txt', rootDirectoryId), fileId: request.fileId };
    expect(await catalog.content.commitFile(other, at())).toMatchObject({ created: false, file: { name: 'b.txt' } });
  });

  test('makes one file of many calls at the same moment', async () => {
    const request = commitRequest('a.txt', rootDirectoryId);
    const answers = await Promise.all(Array.from({ length: 8 }, () => catalog.content.commitFile(request, at())));
    expect(answers.filter((answer) => answer.created)).toHaveLength(1);
    expect(new Set(answers.map((answer) => answer.file?.id))).toEqual(new Set([request.fileId]));
  });

  test('under a taken name is refused and keeps nothing, or takes the next free name', async () => {
    const taken = await catalog.directory('a.txt');
    const request = commitRequest('a.txt', rootDirectoryId);
    await expect(catalog.content.commitFile(request, at())).rejects.toMatchObject({
      code: 'name_conflict',
      members: { conflicting_id: taken.id, conflicting_kind: 'directory', name: 'a.txt' },
    });
    expect(await replicaStates()).toEqual([]);
    const { file } = await catalog.content.commitFile({ ...request, onConflict: OnConflict.RENAME }, at());
    expect(file).toMatchObject({ id: request.fileId, path: '/a (2).txt' });
  });

  test('refuses what is not whole, and a destination that is none', async () => {
    const good = commitRequest('a.txt', rootDirectoryId);
    const bad = [
      { ...good, name: 'a/b' },
      { ...good, fileId: 'x' },
      { ...good, replicas: [] },
      { ...good, blob: { ...good.blob, sha256: randomBytes(31) } },
      { ...good, blob: { ...good.blob, size: 1_048_577n } },
      { ...good, blob: { ...good.blob, size: -1n } },
    ];
    for (const request of bad)
      expect(await codeOf(catalog.content.commitFile(request, at()))).toBe('validation_failed');
    expect(await codeOf(catalog.content.commitFile({ ...good, directoryId: newId() }, at()))).toBe('not_found');
    const lost = { ...good, replicas: [{ backendId: newId(), key: 'k' }] };
    expect(await codeOf(catalog.content.commitFile(lost, at()))).toBe('state_conflict');
    expect(await codeOf(catalog.content.checkDestination({ directoryId: newId() }, at()))).toBe('not_found');
    expect(await codeOf(catalog.content.checkDestination({ directoryId: rootDirectoryId }, at()))).toBe('no error');
    const empty = { ...good, blob: { ...good.blob, size: 0n, chunkCrc32c: new Uint8Array() } };
    expect(await catalog.content.commitFile(empty, at())).toMatchObject({
      created: true,
      file: { file: { size: 0n } },
    });
  });
});

describe('abandoning a blob', () => {
  const abandon = ({ fileId, blob, replicas: [replica] }: ReturnType<typeof commitRequest>) =>
    catalog.content.abandonBlob({ fileId, blobId: blob.id, ...(replica ? { replica } : {}) }, at());

  test('keeps it from being committed and queues its removal, once', async () => {
    const request = commitRequest('a.txt', rootDirectoryId);
    expect((await abandon(request)).file).toBeUndefined();
    expect((await abandon(request)).file).toBeUndefined();
    expect(await codeOf(catalog.content.commitFile(request, at()))).toBe('gone');
    expect(await jobs('remove_blob')).toEqual([{ blob_id: request.blob.id }]);
    const claim = await catalog.content.claimBlobRemoval({ blobId: request.blob.id }, at());
    expect(claim.replicas).toMatchObject([
      { backendId, backendName: 'disk', key: request.replicas[0]?.key, state: ReplicaState.REMOVING },
    ]);
  });

  test('that was committed after all answers the file', async () => {
    const request = commitRequest('a.txt', rootDirectoryId);
    const { file } = await catalog.content.commitFile(request, at());
    expect((await abandon(request)).file).toEqual(file);
    expect(await replicaStates()).toEqual(['available']);
    expect(await jobs('remove_blob')).toEqual([]);
  });

  test('against a commit at the same moment has one winner', async () => {
    for (let round = 0; round < 10; round += 1) {
      const request = commitRequest(`a${round}.txt`, rootDirectoryId);
      const [committed, abandoned] = await Promise.all([
        codeOf(catalog.content.commitFile(request, at())),
        abandon(request),
      ]);
      expect(committed).toBe(abandoned.file ? 'no error' : 'gone');
    }
  });
});

describe('content', () => {
  test('comes with its readable replicas, available ones first', async () => {
    const request = commitRequest('a.txt', rootDirectoryId);
    request.replicas.push({ backendId: secondId, key: 'k2' });
    const { file } = await catalog.content.commitFile(request, at());
    const get = () => catalog.content.getContent({ fileId: request.fileId }, at());
    const names = async () => (await get()).replicas.map((replica) => replica.backendName);
    expect(await get()).toMatchObject({ file, blob: { id: request.blob.id, size: 3n } });
    expect(Buffer.from((await get()).blob?.chunkCrc32c ?? [])).toEqual(request.blob.chunkCrc32c);
    expect(await names()).toEqual(['disk', 'bucket']);
    const first = (change: string) => catalog.admin.query(`update registry.backends set ${change} where name = 'disk'`);
    for (const [worse, better] of [
      ['enabled = false', 'enabled = true'],
      ["health_status = 'unhealthy'", "health_status = 'healthy'"],
    ] as const) {
      await first(worse);
      expect(await names()).toEqual(['bucket', 'disk']);
      await first(better);
      expect(await names()).toEqual(['disk', 'bucket']);
    }
    await catalog.admin.query("update catalog.replicas set state = 'unverified' where backend_id = $1", [backendId]);
    expect(await names()).toEqual(['bucket', 'disk']);
    await catalog.admin.query("update registry.backends set health_status = 'unhealthy' where name = 'bucket'");
    expect(await names()).toEqual(['disk', 'bucket']);
    await catalog.admin.query("update registry.backends set health_status = 'healthy' where name = 'bucket'");
    for (const state of ['corrupt', 'missing', 'copying', 'removing']) {
      await catalog.admin.query('update catalog.replicas set state = $1 where backend_id = $2', [state, secondId]);
      expect(await names()).toEqual(['disk']);
    }
    await catalog.admin.query("update catalog.replicas set state = 'missing'");
    expect(await get()).toMatchObject({ blob: { size: 3n }, replicas: [] });
  });

  test('of a recycled file, or below a recycled directory, is closed', async () => {
    const top = await catalog.directory('top');
    const [file, below] = [await catalog.file('a.txt'), await catalog.file('b.txt', top.id)];
    await recycle(file);
    await recycle(top);
    for (const { id } of [file, below]) {
      expect(await codeOf(catalog.content.getContent({ fileId: id }, at()))).toBe('state_conflict');
    }
    expect(await codeOf(catalog.content.getContent({ fileId: top.id }, at()))).toBe('not_found');
    expect(await codeOf(catalog.content.getContent({ fileId: 'no id' }, at()))).toBe('not_found');
  });

  test('over 1,024 chunks has its checksums apart, in runs', async () => {
    const checksums = randomBytes(1_025 * 4);
    const request = commitRequest('big', rootDirectoryId);
    const blob = { ...request.blob, size: 1_024n * 1_048_576n + 1n, chunkCrc32c: checksums };
    await catalog.content.commitFile({ ...request, blob }, at());
    expect((await catalog.content.getContent({ fileId: request.fileId }, at())).blob?.chunkCrc32c).toHaveLength(0);
    const run = async (first: bigint, count: number) => {
      const answer = await catalog.content.getChunkChecksums({ blobId: blob.id, first, count }, at());
      return Buffer.from(answer.chunkCrc32c);
    };
    expect(await run(0n, 16_384)).toEqual(checksums);
    expect(await run(1_020n, 3)).toEqual(checksums.subarray(4_080, 4_092));
    expect(await run(1_024n, 10)).toEqual(checksums.subarray(4_096));
    expect(await run(5_000n, 10)).toHaveLength(0);
    for (const call of [run(-1n, 1), run(0n, 0), run(0n, 16_385)]) expect(await codeOf(call)).toBe('validation_failed');
    const unknown = catalog.content.getChunkChecksums({ blobId: newId(), first: 0n, count: 1 }, at());
    expect(await codeOf(unknown)).toBe('not_found');
  });
});

describe('a replica', () => {
  const report = (blobId: string, state: ReplicaState) =>
    catalog.content.reportReplica({ blobId, backendId, state }, at());
  const settle = (blobId: string, state: ReplicaState) =>
    catalog.content.settleReplica({ blobId, backendId, state }, at());

  test('that was reported is looked at by one job', async () => {
    const request = commitRequest('a.txt', rootDirectoryId);
    await catalog.content.commitFile(request, at());
    const { id, sha256 } = request.blob;
    expect(await codeOf(report(id, ReplicaState.AVAILABLE))).toBe('validation_failed');
    await report(newId(), ReplicaState.CORRUPT);
    await report(id, ReplicaState.CORRUPT);
    await report(id, ReplicaState.MISSING);
    expect(await replicaStates()).toEqual(['corrupt']);
    expect(await jobs('verify_blob')).toEqual([
      { blob_id: id, backend_id: backendId, key: request.replicas[0]?.key, size: 3, sha256: sha256.toString('hex') },
    ]);
    await settle(id, ReplicaState.AVAILABLE);
    await report(id, ReplicaState.MISSING);
    expect(await replicaStates()).toEqual(['missing']);
    expect(await jobs('verify_blob')).toHaveLength(1);
  });

  test('is settled by what a whole read showed, but not while it is copied or removed', async () => {
    const request = commitRequest('a.txt', rootDirectoryId);
    await catalog.content.commitFile(request, at());
    const { id } = request.blob;
    const set = (state: string) =>
      catalog.admin.query('update catalog.replicas set state = $1, verified_at = null', [state]);
    for (const state of ['available', 'unverified', 'corrupt', 'missing']) {
      await set(state);
      await settle(id, ReplicaState.AVAILABLE);
      const { rows } = await catalog.admin.query(
        'select state, verified_at is not null as verified from catalog.replicas',
      );
      expect(rows).toEqual([{ state: 'available', verified: true }]);
    }
    await settle(id, ReplicaState.MISSING);
    expect(await replicaStates()).toEqual(['missing']);
    for (const state of ['copying', 'removing']) {
      await set(state);
      await settle(id, ReplicaState.AVAILABLE);
      await report(id, ReplicaState.CORRUPT);
      expect(await replicaStates()).toEqual([state]);
    }
    expect(await codeOf(settle(id, ReplicaState.COPYING))).toBe('validation_failed');
  });

  test('counts for its backend in whatever state', async () => {
    expect((await catalog.content.getBackendUsage({}, at())).usage).toEqual([]);
    await catalog.file('a.txt');
    const { blob } = commitRequest('', rootDirectoryId);
    await catalog.file('b', rootDirectoryId, {
      blob: { ...blob, size: 1_048_577n, chunkCrc32c: randomBytes(8) } as never,
    });
    await catalog.admin.query("update catalog.replicas set state = 'corrupt'");
    const { usage } = await catalog.content.getBackendUsage({}, at());
    expect(usage).toMatchObject([{ backendId, replicas: 2n, bytes: 1_048_580n }]);
  });
});

describe('removing a blob', () => {
  const claim = async (blobId: string) => (await catalog.content.claimBlobRemoval({ blobId }, at())).replicas;
  const forget = (blobId: string, backend: string) =>
    catalog.content.forgetReplica({ blobId, backendId: backend }, at());
  const over = () =>
    catalog.admin.query(
      "update catalog.blobs set delete_after = now() - interval '1 second' where delete_after is not null",
    );

  test('waits for the grace time, then goes replica by replica, and may be repeated', async () => {
    const request = commitRequest('a.txt', rootDirectoryId);
    request.replicas.push({ backendId: secondId, key: 'k2' });
    const { file } = await catalog.content.commitFile(request, at());
    const { id } = request.blob;
    expect(await claim(id)).toEqual([]);
    await recycle(file as Node);
    expect(await claim(id)).toEqual([]);
    await catalog.tree.purgeNode({ id: request.fileId, kind: NodeKind.FILE }, at());
    expect(await claim(id)).toEqual([]);
    await over();
    expect(await claim(id)).toHaveLength(2);
    expect(await claim(id)).toHaveLength(2);
    expect(await replicaStates()).toEqual(['removing', 'removing']);
    await forget(id, backendId);
    await forget(id, backendId);
    expect(await claim(id)).toMatchObject([{ backendName: 'bucket' }]);
    await forget(id, secondId);
    expect((await catalog.admin.query('select from catalog.blobs')).rowCount).toBe(0);
    expect(await claim(id)).toEqual([]);
    await forget(id, secondId);
  });

  test('is asked for again where its job failed long ago, those first that wait longest', async () => {
    const { blob, fileId } = commitRequest('a.txt', rootDirectoryId);
    const replica = { backendId, key: 'k' };
    await catalog.content.abandonBlob({ fileId, blobId: blob.id, replica }, at());
    await catalog.admin.query(`update catalog.blobs set delete_after = now() - interval '9 min'`);
    await catalog.admin.query(`update jobs.jobs set state = 'failed', finished_at = now() where kind = 'remove_blob'`);
    const waiting = async (): Promise<number> => {
      const { rows } = await catalog.admin.query(
        `select from jobs.jobs where kind = 'remove_blob' and state = 'pending'`,
      );
      return rows.length;
    };
    await catalog.purge();
    expect(await waiting()).toBe(0);
    await catalog.admin.query(`update catalog.blobs set delete_after = now() - interval '11 min'`);
    await catalog.purge();
    expect(await waiting()).toBe(1);
    // Its turn comes again after those that wait as long.
    const { rows } = await catalog.admin.query(
      `select delete_after > now() - interval '1 min' as late from catalog.blobs`,
    );
    expect(rows).toEqual([{ late: true }]);
  });

  test('never touches the blob of a file, even one that is being purged', async () => {
    const request = commitRequest('a.txt', rootDirectoryId);
    await catalog.content.commitFile(request, at());
    await catalog.admin.query("update catalog.blobs set delete_after = now() - interval '1 second'");
    expect(await claim(request.blob.id)).toEqual([]);
    await catalog.admin.query("update catalog.replicas set state = 'available'");
    await forget(request.blob.id, backendId);
    expect(await replicaStates()).toEqual(['available']);
  });

  test('deletes a blob that has no replica', async () => {
    const { blob, fileId } = commitRequest('a.txt', rootDirectoryId);
    await catalog.content.abandonBlob({ fileId, blobId: blob.id }, at());
    expect(await claim(blob.id)).toEqual([]);
    expect((await catalog.admin.query('select from catalog.blobs')).rowCount).toBe(0);
  });
});
