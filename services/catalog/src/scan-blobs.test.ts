import { afterAll, beforeAll, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import { backendId as first, codeOf, startTestCatalog } from './test-catalog.ts';
import type { TestCatalog } from './test-catalog.ts';

const [second, third] = [newId(), newId()];
const backends = [first, second, third];
const classes = ['image', 'document', 'video'];

let catalog: TestCatalog;
beforeAll(async () => {
  catalog = await startTestCatalog();
  await catalog.admin.query(
    `insert into registry.backends (id, name, type, config) values ($1, 'two', 's3', '{}'), ($2, 'three', 's3', '{}')`,
    [second, third],
  );
});
afterAll(() => catalog.close());

interface Blob {
  classes: string[];
  /** The state at each backend; null where none is. */
  replicas: (string | null)[];
  isLeaving: boolean;
}

const blob = fc.record<Blob>({
  classes: fc.oneof(
    { weight: 4, arbitrary: fc.constantFrom(...classes).map((one) => [one]) },
    fc.array(fc.constantFrom(...classes), { maxLength: 3 }),
  ),
  replicas: fc.tuple(
    ...backends.map(() =>
      fc.constantFrom(
        'available',
        'available',
        'available',
        'unverified',
        'copying',
        'corrupt',
        'missing',
        'removing',
        null,
        null,
      ),
    ),
  ),
  isLeaving: fc.constantFrom(false, false, false, true),
});
const arrangement = fc.subarray(backends);
const arrangements = fc.dictionary(fc.constantFrom('', ...classes), arrangement);

/** What ScanBlobs promises to leave out. */
function isInOrder({ classes: own, replicas }: Blob, inOrder: Record<string, string[]>): boolean {
  const [fileClass] = own;
  if (fileClass === undefined || new Set(own).size > 1) return false;
  const wanted = inOrder[fileClass] ?? inOrder[''] ?? [];
  const lies = backends.every((id, at) => replicas[at] === (wanted.includes(id) ? 'available' : null));
  return wanted.length > 0 && lies;
}

async function insert(blobs: readonly Blob[]): Promise<string[]> {
  const ids = blobs.map(() => newId());
  for (const [at, { classes: own, replicas, isLeaving }] of blobs.entries()) {
    const id = ids[at];
    await catalog.admin.query(
      `insert into catalog.blobs (id, size, sha256, chunk_crc32c, delete_after)
       values ($1, 10, sha256('x'), '\\x00000000', case when $2 then now() end)`,
      [id, isLeaving],
    );
    await catalog.admin.query(
      `insert into catalog.replicas (blob_id, backend_id, key, state) select $1, b.id, 'k', b.state
       from unnest($2::uuid[], $3::text[]) as b (id, state) where b.state is not null`,
      [id, backends, replicas],
    );
    for (const fileClass of own)
      await catalog.admin.query(
        `insert into catalog.nodes (id, parent_id, kind, name, blob_id, size, media_type, file_class)
         values ($1, $2, 'file', $5, $3, 10, 'text/plain', $4)`,
        [newId(), rootDirectoryId, id, fileClass, newId()],
      );
  }
  return ids;
}

test('a scan gives each blob that lies in another way than its class is in order, and counts all', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(blob, { maxLength: 12 }),
      arrangements,
      fc.integer({ min: 1, max: 13 }),
      async (blobs, inOrder, limit) => {
        await catalog.reset();
        const ids = await insert(blobs);
        const given = Object.entries(inOrder).map(([fileClass, backendIds]) => ({ fileClass, backendIds }));
        const seen = { items: new Array<string>(), blobs: 0, bytes: 0n };
        for (let after = ''; ;) {
          const page = await catalog.replicas.scanBlobs({ after, limit, inOrder: given }, catalog.context());
          seen.items.push(...page.items.map(({ id }) => id));
          seen.blobs += page.blobs;
          seen.bytes += page.bytes;
          if (page.blobs < limit) break;
          after = page.last;
        }
        const staying = blobs.flatMap((one, at) => (one.isLeaving ? [] : [{ one, id: ids[at] }]));
        const expected = staying.filter(({ one }) => !isInOrder(one, inOrder)).map(({ id }) => id);
        expect(seen).toEqual({ items: expected, blobs: staying.length, bytes: 10n * BigInt(staying.length) });
      },
    ),
    { numRuns: 60 },
  );
}, 120_000);

test('a scan that makes no sense is refused', async () => {
  const twice = [{ fileClass: 'image' }, { fileClass: 'image' }];
  const scans = [{ after: 'x' }, { limit: 10_001 }, { inOrder: twice }, { inOrder: [{ backendIds: ['x'] }] }];
  for (const scan of scans) {
    const request = { limit: 1, ...scan };
    expect(await codeOf(catalog.replicas.scanBlobs(request, catalog.context()))).toBe('validation_failed');
  }
});
