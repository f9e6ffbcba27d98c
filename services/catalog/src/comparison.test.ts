import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import { BlobStanding } from '@stowage/proto/stowage/catalog/v1/comparison';
import { ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import { backendId, codeOf, commitRequest, idOf, startTestCatalog } from './test-catalog.ts';
import type { TestCatalog } from './test-catalog.ts';

let catalog: TestCatalog;
beforeAll(async () => {
  catalog = await startTestCatalog();
});
afterAll(() => catalog.close());
beforeEach(async () => {
  await catalog.reset();
  await catalog.admin.query('truncate upload.uploads');
});

const at = () => catalog.context();

async function stored(count: number): Promise<string[]> {
  const ids: string[] = [];
  for (let n = 0; n < count; n += 1) {
    const request = commitRequest(`file-${n}`, rootDirectoryId);
    await catalog.content.commitFile(request, at());
    ids.push(request.blob.id);
  }
  return ids;
}

async function upload(blobId: string, state: string): Promise<void> {
  await catalog.admin.query(
    `insert into upload.uploads (id, user_id, state, length, file_id, blob_id, backend_id, expires_at)
     values ($1, $1, $2, 3, $3, $4, $5, now() + interval '1 d')`,
    [newId(), state, newId(), blobId, backendId],
  );
}

async function standing(blobId: string): Promise<BlobStanding | undefined> {
  const { standings } = await catalog.comparison.lookUpBlobs({ backendId, blobIds: [blobId] }, at());
  return standings[0];
}

async function condemn(...blobIds: string[]): Promise<string[]> {
  return (await catalog.comparison.condemnUnknownBlobs({ backendId, blobIds }, at())).blobIds;
}

test('the replicas of a backend come in the order of their keys, each once, in pages of any size', async () => {
  const ids = await stored(40);
  const keys = ids.map((id) => `${id.slice(-2)}/${id}`).sort();
  for (const limit of [1, 7, 40, 1000]) {
    const found: string[] = [];
    for (let after = ''; ;) {
      const { items } = await catalog.comparison.listBackendReplicas({ backendId, after, limit }, at());
      for (const item of items) expect(item).toMatchObject({ size: 3n, state: ReplicaState.AVAILABLE });
      found.push(...items.map(({ blobId }) => `${blobId.slice(-2)}/${blobId}`));
      if (items.length < limit) break;
      after = items.at(-1)?.blobId ?? '';
    }
    expect(found).toEqual(keys);
  }
  expect((await catalog.comparison.countBlobs({}, at())).blobs).toBe(40n);
  const other = { backendId: newId(), after: '', limit: 10 };
  expect((await catalog.comparison.listBackendReplicas(other, at())).items).toEqual([]);
});

describe('a blob that a backend lists', () => {
  test('is here, elsewhere, leaving, of an upload, or unknown', async () => {
    const [here = '', elsewhere = ''] = await stored(2);
    await catalog.admin.query('delete from catalog.replicas where blob_id = $1', [elsewhere]);
    const [open, finalizing, abandoned, ended, unknown, leaving] = Array.from({ length: 6 }, () => newId());
    if (!open || !finalizing || !abandoned || !ended || !unknown || !leaving) throw new Error('six ids');
    await upload(open, 'open');
    await upload(finalizing, 'finalizing');
    await upload(abandoned, 'abandoned');
    await upload(ended, 'ended');
    await catalog.content.abandonBlob({ fileId: newId(), blobId: leaving }, at());
    const blobIds = [here, elsewhere, open, finalizing, abandoned, ended, unknown, leaving];
    const { HERE, ELSEWHERE, UNFINISHED, UNKNOWN, LEAVING } = BlobStanding;
    expect((await catalog.comparison.lookUpBlobs({ backendId, blobIds }, at())).standings).toEqual([
      ...[HERE, ELSEWHERE, UNFINISHED, UNFINISHED, UNFINISHED, UNKNOWN, UNKNOWN, LEAVING],
    ]);
    expect(await codeOf(catalog.comparison.lookUpBlobs({ backendId, blobIds: ['no id'] }, at()))).toBe(
      'validation_failed',
    );
  });

  test('is adopted once where the metadata has no replica of it, and never where it is unknown or leaving', async () => {
    const [blobId = ''] = await stored(1);
    const adopt = async (id: string) =>
      (await catalog.comparison.adoptReplica({ blobId: id, backendId }, at())).accepted;
    expect(await adopt(blobId)).toBe(false);
    await catalog.admin.query('delete from catalog.replicas');
    expect([await adopt(blobId), await adopt(blobId), await adopt(newId())]).toEqual([true, false, false]);
    const { rows } = await catalog.admin.query('select blob_id, key, state from catalog.replicas');
    expect(rows).toEqual([{ blob_id: blobId, key: `blobs/${blobId.slice(-2)}/${blobId}`, state: 'unverified' }]);
    await catalog.admin.query('delete from catalog.replicas');
    await catalog.admin.query('update catalog.blobs set delete_after = now()');
    expect(await adopt(blobId)).toBe(false);
  });
});

describe('what nothing knows', () => {
  test('is given up with a job that removes its bytes, and can not become a file any more', async () => {
    await stored(1);
    const late = commitRequest('late', rootDirectoryId);
    expect(await condemn(late.blob.id)).toEqual([late.blob.id]);
    expect(await standing(late.blob.id)).toBe(BlobStanding.HERE);
    const { rows } = await catalog.admin.query("select params from jobs.jobs where kind = 'remove_blob'");
    expect(rows).toEqual([{ params: { unknown_blobs: [late.blob.id] } }]);
    expect(await codeOf(catalog.content.commitFile(late, at()))).toBe('gone');
    expect(await condemn(late.blob.id)).toEqual([]);
    const { replicas } = await catalog.content.claimBlobRemoval({ blobId: late.blob.id }, at());
    expect(replicas).toMatchObject([{ backendId, state: ReplicaState.REMOVING }]);
    await catalog.content.forgetReplica({ blobId: late.blob.id, backendId }, at());
    expect(await standing(late.blob.id)).toBe(BlobStanding.UNKNOWN);
  });

  test('is left alone where it is known by now, is of an upload, or no blob is known at all', async () => {
    const orphan = newId();
    expect(await condemn(orphan)).toEqual([]);
    const [known = ''] = await stored(1);
    const uploading = newId();
    await upload(uploading, 'finalizing');
    expect(await condemn(known, uploading, orphan)).toEqual([orphan]);
    const recycled = await catalog.file('recycled');
    await catalog.tree.recycleNode(idOf(recycled), at());
    const { rows } = await catalog.admin.query('select blob_id from catalog.nodes where id = $1', [recycled.id]);
    expect(await condemn(rows[0].blob_id)).toEqual([]);
  });

  test('either becomes a file or is given up, when both are tried at the same moment', async () => {
    await stored(1);
    let files = 0;
    for (let round = 0; round < 60; round += 1) {
      const request = commitRequest(`race-${round}`, rootDirectoryId);
      const [made, condemned] = await Promise.all([
        catalog.content.commitFile(request, at()).then(
          () => true,
          () => false,
        ),
        condemn(request.blob.id),
      ]);
      expect(condemned).toEqual(made ? [] : [request.blob.id]);
      if (made) files += 1;
    }
    const { rows } = await catalog.admin.query(
      "select count(*)::integer as files from catalog.nodes n join catalog.replicas r using (blob_id) where name like 'race-%' and state = 'available'",
    );
    expect(rows).toEqual([{ files }]);
  });
});
