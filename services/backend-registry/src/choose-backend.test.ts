import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { newId } from '@stowage/common/ids';
import { markerName } from './stores/identity-marker.ts';
import { refuses } from './stores/test-store.ts';
import { context, startTestRegistry } from './test-registry.ts';
import type { TestRegistry } from './test-registry.ts';

let registry: TestRegistry;

beforeAll(async () => {
  registry = await startTestRegistry();
});
afterAll(() => registry.close());

test('an upload lands on no unhealthy backend, and on none that just failed it', async () => {
  const replica = registry.replica();
  await replica.setUp();
  const home = (await registry.rows())[0]?.id ?? '';
  const second = newId();
  const root = path.join(registry.dataDir, 'backends', 'second');
  await mkdir(root);
  await writeFile(path.join(root, markerName), JSON.stringify({ backend_id: second }));
  await registry.admin.query(
    `insert into registry.backends (id, name, type, config) values ($1, 'second', 'local_directory', $2)`,
    [second, { root_path: root }],
  );
  const choose = async (except: string[] = []): Promise<[string, boolean]> => {
    const choice = await replica.blobs.chooseBackend({ backendIds: [second], except }, context());
    return [choice.backendId, choice.hasAlternative];
  };
  expect(await choose()).toEqual([second, true]);
  expect(await choose([second])).toEqual([home, false]);
  await refuses(choose([second, home]), 'unavailable');
  await registry.admin.query(
    `update registry.backends set health_status = 'unhealthy', health_step = 'write' where id = $1`,
    [second],
  );
  expect(await choose()).toEqual([home, false]);
  await refuses(choose([home]), 'unavailable');
});
