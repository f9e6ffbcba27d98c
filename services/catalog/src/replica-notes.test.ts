import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { newId } from '@stowage/common/ids';
import { NodeKind, ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import { backendId as first, codeOf, commitRequest, idOf, startTestCatalog } from './test-catalog.ts';
import type { TestCatalog } from './test-catalog.ts';
import { rootDirectoryId } from '@stowage/common/ids';

const [second, third] = [newId(), newId()];
const hourMs = 3_600_000n;

let catalog: TestCatalog;
let blobId: string;
beforeAll(async () => {
  catalog = await startTestCatalog();
  await catalog.admin.query(
    `insert into registry.backends (id, name, type, config) values ($1, 'two', 's3', '{}'), ($2, 'three', 's3', '{}')`,
    [second, third],
  );
});
afterAll(() => catalog.close());
beforeEach(async () => {
  await catalog.reset();
  const request = commitRequest('file', rootDirectoryId);
  blobId = request.blob.id;
  await catalog.content.commitFile(request, at());
});

const at = () => catalog.context();
const note = async (backendId: string, state: ReplicaState) => {
  const { accepted } = await catalog.replicas.noteReplicas({ notes: [{ blobId, backendId, state, key: 'k' }] }, at());
  expect(accepted).toHaveLength(1);
  return { accepted: accepted[0] };
};
const begin = (backendId: string) => note(backendId, ReplicaState.COPYING);
const add = (backendId: string) => note(backendId, ReplicaState.UNVERIFIED);
const keep = (backendId: string) => catalog.replicas.keepReplica({ blobId, backendId }, at());
const settle = (backendId: string, state: ReplicaState) =>
  catalog.content.settleReplica({ blobId, backendId, state }, at());
const claim = (backendId: string, staying: string[], verifiedWithinMs = hourMs) =>
  catalog.replicas.claimReplicaRemoval({ blobId, backendId, staying, verifiedWithinMs }, at());
const yes = expect.objectContaining({ accepted: true });
const no = expect.objectContaining({ accepted: false });

/** A second good copy. */
async function copyTo(backendId: string): Promise<void> {
  expect(await begin(backendId)).toEqual(yes);
  expect(await add(backendId)).toEqual(yes);
  await settle(backendId, ReplicaState.AVAILABLE);
}

async function statesNow(): Promise<Record<string, string>> {
  const { rows } = await catalog.admin.query<{ backend_id: string; state: string }>(
    'select backend_id, state from catalog.replicas where blob_id = $1',
    [blobId],
  );
  return Object.fromEntries(rows.map((row) => [row.backend_id, row.state]));
}

async function purge(): Promise<void> {
  const { rows } = await catalog.admin.query<{ id: string }>('select id from catalog.nodes where blob_id = $1', [
    blobId,
  ]);
  const file = { id: rows[0]?.id ?? '', kind: NodeKind.FILE };
  await catalog.tree.recycleNode(file, at());
  await catalog.tree.purgeNode(file, at());
  await catalog.purge();
}

describe('a copy', () => {
  test('is noted before it is made, counts once it is durable, and is good once it was read back', async () => {
    expect(await begin(second)).toEqual(yes);
    expect(await statesNow()).toEqual({ [first]: 'available', [second]: 'copying' });
    expect(await begin(second)).toEqual(yes);
    expect(await add(second)).toEqual(yes);
    expect(await add(second)).toEqual(yes);
    expect((await statesNow())[second]).toBe('unverified');
    await settle(second, ReplicaState.AVAILABLE);
    const { blob } = await catalog.replicas.getBlob({ blobId }, at());
    expect(blob?.replicas.map(({ backendId, state }) => [backendId, state])).toEqual([
      [first, ReplicaState.AVAILABLE],
      [second, ReplicaState.AVAILABLE],
    ]);
    expect(Number(blob?.replicas[1]?.verifiedAgoMs)).toBeLessThan(60_000);
  });

  test('replaces a bad one, and no good one', async () => {
    expect(await begin(first)).toEqual(no);
    await settle(first, ReplicaState.CORRUPT);
    expect(await begin(first)).toEqual(yes);
    expect(await add(second)).toEqual(no);
  });

  test('is not begun on a backend that is gone, nor of a blob that no file has any more', async () => {
    expect(await begin(newId())).toEqual(no);
    expect(await begin(second)).toEqual(yes);
    await purge();
    expect(await begin(third)).toEqual(no);
    // Whoever removes the blob finds the copy that was begun.
    await catalog.admin.query("update catalog.blobs set delete_after = now() - interval '1 s'");
    const { replicas } = await catalog.content.claimBlobRemoval({ blobId }, at());
    expect(replicas.map(({ backendId }) => backendId).sort()).toEqual([first, second].sort());
    expect(await add(second)).toEqual(no);
    expect(await codeOf(catalog.replicas.getBlob({ blobId }, at()))).toBe('not_found');
  });
});

describe('a surplus replica', () => {
  test('goes only while all that stay are good and freshly read', async () => {
    expect(await claim(first, [])).toEqual(no);
    expect(await claim(first, [first])).toEqual(no);
    expect(await claim(first, [second])).toEqual(no);
    await begin(second);
    expect(await claim(first, [second])).toEqual(no);
    await add(second);
    expect(await claim(first, [second])).toEqual(no);
    await settle(second, ReplicaState.AVAILABLE);
    await catalog.admin.query(
      `update catalog.replicas set verified_at = now() - interval '2 hours' where backend_id = $1`,
      [second],
    );
    expect(await claim(first, [second])).toEqual(no);
    expect(await claim(first, [second, third], 3n * hourMs)).toEqual(no);
    expect(await claim(first, [second], 3n * hourMs)).toEqual(yes);
    expect(await statesNow()).toEqual({ [first]: 'removing', [second]: 'available' });
    // Only one at a time removes it, and another goes on once that one must have ended; the other one may not go as well.
    expect(await claim(first, [second], 3n * hourMs)).toEqual(no);
    await catalog.admin.query(`update catalog.replicas set removing_since = now() - interval '3 min'`);
    expect(await claim(first, [second], 3n * hourMs)).toEqual(yes);
    expect(await claim(second, [first], 3n * hourMs)).toEqual(no);
    await catalog.content.forgetReplica({ blobId, backendId: first }, at());
    expect(await statesNow()).toEqual({ [second]: 'available' });
  });

  test('of two that justify each other’s removal at the same moment, one stays', async () => {
    for (let round = 0; round < 20; round += 1) {
      await catalog.admin.query('delete from catalog.replicas where backend_id = $1', [second]);
      await catalog.admin.query(`update catalog.replicas set state = 'available', verified_at = now()`);
      await copyTo(second);
      const answers = await Promise.all([claim(first, [second]), claim(second, [first])]);
      expect(answers.filter(({ accepted }) => accepted)).toHaveLength(1);
      expect(Object.values(await statesNow()).sort()).toEqual(['available', 'removing']);
    }
  });

  test('does not go where what stays is found bad at the same moment', async () => {
    for (let round = 0; round < 20; round += 1) {
      await catalog.admin.query('delete from catalog.replicas where backend_id = $1', [second]);
      await catalog.admin.query(`update catalog.replicas set state = 'available', verified_at = now()`);
      await copyTo(second);
      const [claimed] = await Promise.all([claim(first, [second]), settle(second, ReplicaState.CORRUPT)]);
      const states = await statesNow();
      // Either it was found bad first, and nothing goes; or the removal was claimed while it was still good.
      expect(states[second]).toBe('corrupt');
      expect(states[first]).toBe(claimed.accepted ? 'removing' : 'available');
    }
  });

  test('that is needed after all is kept, but not while its bytes may be on their way out', async () => {
    await copyTo(second);
    await claim(first, [second]);
    expect(await keep(first)).toEqual(no);
    await catalog.admin.query(`update catalog.replicas set removing_since = now() - interval '3 min'`);
    expect(await keep(first)).toEqual(yes);
    expect(await keep(first)).toEqual(no);
    expect((await statesNow())[first]).toBe('unverified');
  });
});

describe('the list of blobs', () => {
  test('gives each blob once, by id, with the classes of its files, and none that is to go', async () => {
    const ids = [blobId];
    for (let index = 0; index < 5; index += 1) {
      const request = commitRequest(`file-${index}`, rootDirectoryId);
      ids.push(request.blob.id);
      await catalog.content.commitFile({ ...request, fileClass: index % 2 === 0 ? 'image' : 'video' }, at());
    }
    const gone = commitRequest('gone', rootDirectoryId);
    await catalog.content.commitFile(gone, at());
    await catalog.admin.query('update catalog.blobs set delete_after = now() where id = $1', [gone.blob.id]);
    const seen = [];
    for (let after = ''; ;) {
      const { items } = await catalog.replicas.listBlobs({ after, limit: 4 }, at());
      seen.push(...items);
      after = items.at(-1)?.id ?? '';
      if (items.length < 4) break;
    }
    expect(seen.map(({ id }) => id)).toEqual(ids.sort());
    expect(new Set(seen.flatMap(({ fileClasses }) => fileClasses))).toEqual(new Set(['document', 'image', 'video']));
    expect(seen[0]).toMatchObject({ size: 3n, replicas: [{ backendId: first, state: ReplicaState.AVAILABLE }] });
    expect(await codeOf(catalog.replicas.listBlobs({ after: 'x', limit: 4 }, at()))).toBe('validation_failed');
    expect(await codeOf(catalog.replicas.listBlobs({ after: '', limit: 1_001 }, at()))).toBe('validation_failed');
  });

  test('of damaged ones gives those with a corrupt or missing replica, once each; a recycled file’s too', async () => {
    const file = await catalog.file('other');
    expect((await catalog.replicas.listBlobs({ after: '', limit: 9, damaged: true }, at())).items).toEqual([]);
    await copyTo(second);
    for (const backendId of [first, second]) await settle(backendId, ReplicaState.MISSING);
    await catalog.admin.query(
      `update catalog.replicas set state = 'corrupt' where blob_id = (select blob_id from catalog.nodes where id = $1)`,
      [file.id],
    );
    await catalog.tree.recycleNode(idOf(file), at());
    const { items } = await catalog.replicas.listBlobs({ after: '', limit: 9, damaged: true }, at());
    expect(items).toHaveLength(2);
    expect(items.map(({ replicas }) => replicas.length).sort()).toEqual([1, 2]);
  });
});
