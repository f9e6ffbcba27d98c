import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { newId } from '@stowage/common/ids';
import { until } from '@stowage/tests/support/client';
import { refuses } from './stores/test-store.ts';
import { context, startTestRegistry } from './test-registry.ts';
import type { TestRegistry } from './test-registry.ts';

let registry: TestRegistry;
beforeAll(async () => {
  registry = await startTestRegistry();
});
afterAll(() => registry.close());
beforeEach(() => registry.reset());

const folder = (name: string): string => path.join(registry.dataDir, 'backends', name);

test('a check that a change of the place overtakes looks again, and nothing goes to the place before', async () => {
  const made = await registry
    .replica()
    .backends.createBackend(
      { name: 'moving', type: 'local_directory', config: { root_path: folder('before') } },
      context(),
    );
  const id = made.backend?.id ?? '';
  // A process that has not opened it yet reads its row, and then waits for its secrets.
  const late = registry.replica();
  const blocker = await registry.admin.connect();
  await blocker.query('begin');
  await blocker.query('lock table registry.backend_secrets in access exclusive mode');
  const checked = late.backends.checkBackend({ id }, context());
  await until(async () => {
    const { rowCount } = await blocker.query(`
      select from pg_locks where not granted and relation = 'registry.backend_secrets'::regclass`);
    return (rowCount ?? 0) > 0;
  });
  await blocker.query(
    `update registry.backends set config = jsonb_build_object('root_path', $2::text), marked = false,
      version = version + 1 where id = $1`,
    [id, folder('after')],
  );
  late.stores.doubt(id);
  await blocker.query('commit');
  blocker.release();
  expect((await checked).backend).toMatchObject({
    health: { status: 'healthy' },
    config: { root_path: folder('after') },
  });

  await late.blobs.createStaged({ backendId: id, stagedId: newId() }, context());
  expect(await readdir(path.join(folder('before'), 'staging'))).toEqual([]);
  expect(await readdir(path.join(folder('after'), 'staging'))).toHaveLength(1);
});

test('content is not removed any more for a caller that went away before its turn came', async () => {
  const replica = registry.replica();
  await replica.setUp();
  const stagedId = newId();
  const { backendId } = await replica.stage({ stagedId, size: 0n });
  const { blob } = await replica.blobs.sealBlob(
    { backendId, stagedId, blobId: newId(), size: 0n, waitMs: 5_000 },
    context(),
  );
  const key = blob?.key ?? '';
  const gone = new AbortController();
  const removal = replica.blobs.deleteBlob({ backendId, key }, { ...context(), signal: gone.signal });
  gone.abort();
  await refuses(removal, 'unavailable');
  // What was begun for it has ended by then.
  const store = await replica.stores.recheck(backendId);
  expect(await store.stat(key)).toMatchObject({ size: 0 });
});
