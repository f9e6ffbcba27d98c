import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { rootDirectoryId } from '@stowage/common/ids';
import { NodeKind } from '@stowage/proto/stowage/catalog/v1/node';
import { faultsOf, statementsOf } from '@stowage/tests/support/query-plans';
import { commitRequest, idOf, startTestCatalog } from './test-catalog.ts';
import type { TestCatalog } from './test-catalog.ts';

let catalog: TestCatalog;
beforeAll(async () => {
  catalog = await startTestCatalog();
});
afterAll(() => catalog.close());

/** PostgreSQL keeps a prepared plan until the table is analysed: thousands of files later. */
test('plans that are made while there is hardly a file are good for many', async () => {
  const at = () => catalog.context();
  const statements = await statementsOf(async () => {
    const directory = idOf(await catalog.directory('first'));
    await catalog.content.checkDestination({ directoryId: directory.id }, at());
    const { file } = await catalog.content.commitFile(commitRequest('new', directory.id), at());
    await catalog.tree.getNode({ id: file?.id ?? '', kind: NodeKind.FILE, withPlacement: true }, at());
    await catalog.content.getContent({ fileId: file?.id ?? '' }, at());
    await catalog.tree.moveNode({ ...directory, parentId: rootDirectoryId }, at());
  });
  expect(statements.length).toBeGreaterThan(5);
  const faults = await Promise.all(
    statements.map((statement) => faultsOf(catalog.pool, statement, ['nodes', 'blobs', 'replicas'])),
  );
  expect(faults.flat()).toEqual([]);
});
