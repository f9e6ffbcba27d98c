import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { rootDirectoryId } from '@stowage/common/ids';
import { importStaged } from '../import/import-staged.ts';
import { sectionChanges } from './section-changes.ts';
import { addFile, farId, localId, startTestPlans } from './test-plans.ts';
import type { TestPlans } from './test-plans.ts';

let plans: TestPlans;
beforeAll(async () => {
  plans = await startTestPlans();
});
afterAll(() => plans.close());

/** What happened since the document was exported. */
const since = [
  `update catalog.nodes set name = name || ' renamed', version = version + 1 where name = 'file 1'`,
  `update catalog.nodes set deleted_at = now(), purge_at = now() where name = 'file 2'`,
  `delete from catalog.nodes where name = 'file 3'`,
  `update catalog.blobs b set delete_after = now()
   where not exists (select from catalog.nodes n where n.blob_id = b.id)`,
  `update catalog.replicas set state = 'corrupt' where backend_id = '${farId}' and blob_id in (
     select blob_id from catalog.nodes where name = 'file 0')`,
  `delete from catalog.replicas where backend_id = '${localId}' and blob_id in (
     select blob_id from catalog.nodes where name = 'file 0')`,
  `update placement.policies set replicas = 1, version = version + 1 where file_class = 'default'`,
  `delete from placement.policies where file_class = 'photo'`,
  `update registry.backends set name = 'renamed', version = version + 1 where id = '${farId}'`,
];

test('after an import its document changes nothing more: a plan counts what an import does', async () => {
  const number = await plans.stageLive();
  for (const change of since) await plans.admin.query(change);
  await addFile(plans.admin, rootDirectoryId, 'newer');
  const before = await plans.run((client) => sectionChanges(client, number));
  expect(before.map(({ section, create, update, remove }) => [section, create, update, remove].map(String))).toEqual([
    ['directories', '0', '0', '0'],
    ['files', '5', '10', '1'],
    ['blobs', '0', '5', '1'],
    ['replicas', '5', '5', '2'],
    ['backends', '0', '1', '0'],
    ['policies', '1', '1', '0'],
  ]);
  await plans.run((client) => importStaged(client, { number, knownBackends: [localId, farId], instanceId: null }));
  const after = await plans.run((client) => sectionChanges(client, number));
  for (const { section, create, update, remove } of after)
    expect([section, create, update, remove]).toEqual([section, 0n, 0n, 0n]);
});
