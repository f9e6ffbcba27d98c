import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import { claimJobs } from '@stowage/common/jobs/queue';
import { NodeKind, OnConflict, ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import { SortKey } from '@stowage/proto/stowage/catalog/v1/tree';
import { faultsOf, statementsOf } from '@stowage/tests/support/query-plans';
import { backendId, commitRequest, idOf, startTestCatalog } from './test-catalog.ts';
import type { TestCatalog } from './test-catalog.ts';

const count = 100_000;
const big = ['nodes', 'blobs', 'replicas', 'jobs', 'outbox', 'idempotency_keys'];
const directoryId = '01900000-0000-7000-8000-000000000001';
const seededId = (n: number): string => `01900000-0000-7000-8001-${n.toString(16).padStart(12, '0')}`;

let catalog: TestCatalog;
beforeAll(async () => {
  catalog = await startTestCatalog();
  await seed(catalog);
}, 120_000);
afterAll(() => catalog.close());

const at = () => catalog.context();

/** A directory of 100,000 files with content, a bin of 10,000, and as many jobs, events and keys. */
async function seed({ admin }: TestCatalog): Promise<void> {
  const id = "('01900000-0000-7000-8001-' || lpad(to_hex(n), 12, '0'))::uuid";
  await admin.query("insert into catalog.nodes (id, parent_id, kind, name) values ($1, $2, 'directory', 'big')", [
    directoryId,
    rootDirectoryId,
  ]);
  const statements = [
    `insert into catalog.blobs (id, size, sha256, chunk_crc32c)
     select ${id}, 3, sha256(n::text::bytea), '\\x00000000' from generate_series(1, ${count}) n`,
    `insert into catalog.replicas (blob_id, backend_id, key, state)
     select ${id}, '${backendId}', 'key-' || n, 'available' from generate_series(1, ${count}) n`,
    `insert into catalog.nodes (id, parent_id, kind, name, blob_id, size, media_type, file_class, created_at, updated_at,
       deleted_at, purge_at)
     select ${id}, '${directoryId}', 'file', 'file-' || n, ${id}, n::bigint * 7919 % 10007, 'text/plain', 'document',
       now() - n * interval '1 s', now() - n::bigint * 104729 % 100003 * interval '1 s',
       case when n % 10 = 0 then now() - n * interval '1 s' end, case when n % 10 = 0 then now() + interval '30 d' end
     from generate_series(1, ${count}) n`,
    `insert into jobs.jobs (id, kind, state, finished_at) select ${id}, 'verify_blob',
       case when n % 2 = 0 then 'pending' else 'succeeded' end, case when n % 2 = 1 then now() end
     from generate_series(1, ${count}) n`,
    `insert into jobs.outbox (id, subject, data) select ${id}, 'stowage.files.created', '{}' from generate_series(1, ${count}) n`,
    `insert into jobs.idempotency_keys (user_id, route, key, fingerprint)
     select ${id}, 'route', 'key-' || n, '' from generate_series(1, ${count}) n`,
    'vacuum analyze',
  ];
  for (const statement of statements) await admin.query(statement);
}

/** Everything that is wrong with the statements that `work` runs, which must be some. */
async function faults(work: () => Promise<unknown>, dearest?: number): Promise<string[]> {
  const statements = await statementsOf(work);
  expect(statements.length).toBeGreaterThan(0);
  const found = await Promise.all(statements.map((statement) => faultsOf(catalog.admin, statement, big, dearest)));
  return found.flat();
}

describe('in a directory of 100,000 files', () => {
  const sorts = [SortKey.NAME, SortKey.CREATED_AT, SortKey.UPDATED_AT, SortKey.SIZE] as const;
  const orders = sorts.flatMap((sort) => [false, true].map((descending) => ({ sort, descending })));

  test.each(orders)('a page in order $sort (descending: $descending) reads no more than itself', async (order) => {
    const request = { directoryId, limit: 100, ...order };
    expect(await faults(() => catalog.tree.listChildren({ ...request, cursor: '' }, at()))).toEqual([]);
    const { nextCursor = '' } = await catalog.tree.listChildren({ ...request, cursor: '' }, at());
    expect(nextCursor).not.toBe('');
    expect(await faults(() => catalog.tree.listChildren({ ...request, cursor: nextCursor }, at()))).toEqual([]);
    const files = { ...request, kind: NodeKind.FILE, cursor: nextCursor };
    expect(await faults(() => catalog.tree.listChildren(files, at()))).toEqual([]);
  });

  test('a file and its content are found by their ids', async () => {
    const file = { id: seededId(5), kind: NodeKind.FILE };
    expect(await faults(() => catalog.tree.getNode({ ...file, withPlacement: true }, at()))).toEqual([]);
    expect(await faults(() => catalog.tree.getNode({ id: directoryId, kind: NodeKind.DIRECTORY }, at()))).toEqual([]);
    expect(await faults(() => catalog.content.getContent({ fileId: seededId(5) }, at()))).toEqual([]);
    const chunks = { blobId: seededId(5), first: 0n, count: 1 };
    expect(await faults(() => catalog.content.getChunkChecksums(chunks, at()))).toEqual([]);
  });

  test('a file is made without looking at its siblings', async () => {
    expect(await faults(() => catalog.content.checkDestination({ directoryId }, at()))).toEqual([]);
    const fresh = commitRequest('new', directoryId);
    expect(await faults(() => catalog.content.commitFile(fresh, at()))).toEqual([]);
    // Asked again, and with a name that is taken.
    expect(await faults(() => catalog.content.commitFile(fresh, at()))).toEqual([]);
    const taken = commitRequest('file-1', directoryId, OnConflict.RENAME);
    expect(await faults(() => catalog.content.commitFile(taken, at()))).toEqual([]);
    const directory = { parentId: directoryId, name: 'file-2', onConflict: OnConflict.RENAME };
    const key = catalog.context({ route: 'POST /api/directories', key: newId(), fingerprint: 'f' });
    expect(await faults(() => catalog.tree.createDirectory(directory, key))).toEqual([]);
  });

  test('a file changes its name and place, goes into the bin and back, without looking at others', async () => {
    const file = { id: seededId(7), kind: NodeKind.FILE };
    const fail = { onConflict: OnConflict.FAIL };
    expect(await faults(() => catalog.tree.renameNode({ ...file, ...fail, name: 'other' }, at()))).toEqual([]);
    const root = { parentId: rootDirectoryId, onConflict: OnConflict.FAIL };
    expect(await faults(() => catalog.tree.moveNode({ ...file, ...root }, at()))).toEqual([]);
    expect(await faults(() => catalog.tree.recycleNode(file, at()))).toEqual([]);
    expect(await faults(() => catalog.tree.restoreNode({ ...file, ...fail }, at()))).toEqual([]);
    await catalog.tree.recycleNode(file, at());
    expect(await faults(() => catalog.tree.purgeNode(file, at()))).toEqual([]);
  });

  test('what lies below the directory does not matter to a change of its own', async () => {
    const directory = idOf(await catalog.directory('target'));
    const move = { id: directoryId, kind: NodeKind.DIRECTORY, parentId: directory.id, onConflict: OnConflict.FAIL };
    expect(await faults(() => catalog.tree.moveNode(move, at()))).toEqual([]);
    const big = { id: directoryId, kind: NodeKind.DIRECTORY };
    const renamed = { ...big, name: 'renamed', onConflict: OnConflict.FAIL };
    expect(await faults(() => catalog.tree.renameNode(renamed, at()))).toEqual([]);
    expect(await faults(() => catalog.tree.recycleNode(big, at()))).toEqual([]);
    const restore = { ...big, onConflict: OnConflict.FAIL };
    expect(await faults(() => catalog.tree.restoreNode(restore, at()))).toEqual([]);
  });
});

test('a page of a bin of 10,000 reads no more than itself', async () => {
  // PostgreSQL expects ten steps on the way up from each entry.
  const dearest = 4_000;
  const page = (cursor: string) => catalog.tree.listRecycleBin({ limit: 100, cursor }, at());
  expect(await faults(() => page(''), dearest)).toEqual([]);
  const { nextCursor = '' } = await page('');
  expect(nextCursor).not.toBe('');
  expect(await faults(() => page(nextCursor), dearest)).toEqual([]);
});

test('a replica is reported and settled by its key', async () => {
  const replica = { blobId: seededId(9), backendId };
  const corrupt = { ...replica, state: ReplicaState.CORRUPT };
  expect(await faults(() => catalog.content.reportReplica(corrupt, at()))).toEqual([]);
  const available = { ...replica, state: ReplicaState.AVAILABLE };
  expect(await faults(() => catalog.content.settleReplica(available, at()))).toEqual([]);
});

test('a page of blobs with their classes and replicas reads no more than itself, and damaged ones are found at once', async () => {
  // 100 blobs with two look-ups each.
  const dearest = 3_000;
  const page = (request: { after: string; damaged?: boolean }) =>
    catalog.replicas.listBlobs({ limit: 100, ...request }, at());
  expect(await faults(() => page({ after: '' }), dearest)).toEqual([]);
  const { items } = await page({ after: seededId(50_000) });
  expect(items.map(({ id }) => id)).toEqual(Array.from({ length: 100 }, (_, n) => seededId(50_001 + n)));
  expect(await faults(() => page({ after: seededId(50_000) }), dearest)).toEqual([]);
  expect(await faults(() => page({ after: '', damaged: true }), dearest)).toEqual([]);
  const inOrder = [{ fileClass: '', backendIds: [backendId] }];
  const scan = () => catalog.replicas.scanBlobs({ after: seededId(50_000), limit: 100, inOrder }, at());
  await scan();
  expect(await faults(scan, 20_000)).toEqual([]);
  expect(await faults(() => catalog.replicas.getBlob({ blobId: seededId(9) }, at()))).toEqual([]);
});

test('what placement notes of a replica is found by its key', async () => {
  const replica = { blobId: seededId(11), backendId };
  const other = '01900000-0000-7000-8000-00000000000c';
  for (const state of [ReplicaState.COPYING, ReplicaState.UNVERIFIED, ReplicaState.AVAILABLE]) {
    const notes = [{ ...replica, state, key: 'k' }];
    expect(await faults(() => catalog.replicas.noteReplicas({ notes }, at()))).toEqual([]);
  }
  const claim = { ...replica, staying: [other], verifiedWithinMs: 1_000n };
  expect(await faults(() => catalog.replicas.claimReplicaRemoval(claim, at()))).toEqual([]);
  expect(await faults(() => catalog.replicas.keepReplica(replica, at()))).toEqual([]);
});

test('replicas that wait to be read are found without looking at the others', async () => {
  const request = { backendIds: [backendId], forMs: 30n * 86_400_000n, limit: 100 };
  expect(await faults(() => catalog.replicas.listStaleReplicas(request, at()))).toEqual([]);
});

test('the replicas of a backend come by their keys, and blobs that it lists are looked up, without looking at the others', async () => {
  const page = (after: string) => catalog.comparison.listBackendReplicas({ backendId, after, limit: 100 }, at());
  const dearest = 2_000;
  expect(await faults(() => page(''), dearest)).toEqual([]);
  expect(await faults(() => page(seededId(50_000)), dearest)).toEqual([]);
  const { items } = await page(seededId(50_000));
  expect(items.slice(0, 2).map(({ blobId }) => blobId)).toEqual([seededId(50_000 + 256), seededId(50_000 + 512)]);
  const listed = { backendId, blobIds: [seededId(5), newId()] };
  expect(await faults(() => catalog.comparison.lookUpBlobs(listed, at()))).toEqual([]);
  const stored = { blobId: seededId(5), backendId };
  expect(await faults(() => catalog.comparison.adoptReplica(stored, at()))).toEqual([]);
  const unknown = { backendId, blobIds: [newId()] };
  expect(await faults(() => catalog.comparison.condemnUnknownBlobs(unknown, at()))).toEqual([]);
});

test('jobs are claimed without looking at those that are not due', async () => {
  const lease = { holder: newId(), leaseMs: 30_000 };
  expect(await faults(() => claimJobs(catalog.db, ['verify_blob', 'remove_blob'], 4, lease))).toEqual([]);
});

test('a query that reads a whole table is told', async () => {
  const text = 'select id from catalog.nodes where media_type = $1 order by id';
  expect(await faultsOf(catalog.admin, { text, values: ['text/plain'] }, big)).not.toEqual([]);
});
