import { afterAll, beforeAll, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { Readable } from 'node:stream';
import { rootDirectoryId } from '@stowage/common/ids';
import { sectionNames } from './records.ts';
import type { SectionName } from './records.ts';
import { stageDocument } from './stage-document.ts';
import type { StagedDocument } from './stage-document.ts';
import { dropStagedTables, stagedTable } from './staged-tables.ts';
import { documentOf, sampleRecords, testId } from './test-documents.ts';
import type { Records } from './test-documents.ts';
import { startTestMetadata } from './test-metadata.ts';
import type { TestMetadata } from './test-metadata.ts';

let metadata: TestMetadata;

beforeAll(async () => {
  metadata = await startTestMetadata();
});
afterAll(() => metadata.close());

function stage(text: string): Promise<StagedDocument> {
  const { signal } = new AbortController();
  const staging = { gzip: false, limit: 2 ** 30, signal, keep: true };
  return stageDocument(metadata.database.bulk, Readable.from([Buffer.from(text)]), staging);
}

/** Puts staged records into the live tables, sees all constraints hold, and takes them out again. */
async function insert(number: number): Promise<void> {
  const client = await metadata.admin.connect();
  const staged = (name: Parameters<typeof stagedTable>[1]): string => stagedTable(number, name);
  const copy = (live: string, table: string, columns: string): string =>
    `insert into ${live} (${columns}) select ${columns} from ${table}`;
  try {
    await client.query('begin');
    await client.query('delete from catalog.nodes');
    const statements = [
      copy('registry.backends', staged('backends'), 'id, name, type, enabled, is_default, marked, config, version'),
      copy('catalog.blobs', staged('blobs'), 'id, size, sha256, chunk_crc32c, created_at, delete_after'),
      copy('catalog.replicas', staged('replicas'), 'blob_id, backend_id, key, state, verified_at, created_at'),
      copy(
        'catalog.nodes',
        staged('nodes'),
        `id, parent_id, kind, name, version, created_at, updated_at, deleted_at, purge_at, purged_at, blob_id, size,
         media_type, file_class`,
      ),
      copy('placement.policies', staged('policies'), 'file_class, replicas, sync_replicas, version, updated_at'),
      `insert into placement.policy_backends (file_class, position, backend_id)
       select file_class, place - 1, id from ${staged('policies')}, unnest(backends) with ordinality as named (id, place)`,
      'set constraints all immediate',
    ];
    for (const statement of statements) await client.query(statement);
  } finally {
    await client.query('rollback');
    client.release();
  }
}

async function drop(number: number): Promise<void> {
  const client = await metadata.admin.connect();
  await dropStagedTables(client, number).finally(() => client.release());
}

const ids = [rootDirectoryId, ...[1, 2, 3, 4].flatMap((kind) => [0, 1, 2].map((n) => testId(kind, n)))];

/** What a field may be changed to: often something that another one has. */
const odd = fc.oneof(
  fc.constantFrom(...ids),
  fc.constantFrom(
    null,
    true,
    false,
    0,
    1,
    -0,
    -1,
    1.5,
    2 ** 31,
    2 ** 53,
    1e300,
    700_000,
    '',
    '.',
    ' ',
    'a',
    'ö',
    'o\u0308',
  ),
  fc.constantFrom(
    'a\u0000b',
    'a\\nb',
    '\\N',
    'a\tb',
    '\ud800',
    '\u202e',
    'default',
    'local',
    'far',
    's3',
    'webdav',
    'copying',
  ),
  fc.constantFrom('2026-02-30T00:00:00.000Z', '0000-01-01T00:00:00.000Z', '9999-12-31T23:59:59.999Z'),
  fc.constantFrom('AAAA', 'AAAAAA==', 'AAAAAB==', 'AAAAAAAAAAA=', 'ab'.repeat(32)),
  fc.constantFrom([], [testId(4, 1)], [testId(4, 1), testId(4, 1)], {}, { root_path: '/a' }, { root_path: '/\ud800' }),
  fc.string({ unit: 'binary', maxLength: 300 }),
);

const change = fc.record({
  section: fc.constantFrom(...sectionNames),
  record: fc.nat(),
  field: fc.nat(),
  value: odd,
  other: fc.nat(),
  what: fc.constantFrom('set', 'copy', 'copy', 'copy', 'copy', 'remove', 'repeat', 'forget'),
});

type Change = typeof change extends fc.Arbitrary<infer C> ? C : never;

function changeRecords(records: Records, { section, record, field, value, other, what }: Change): void {
  const list: object[] = records[section];
  const index = record % Math.max(list.length, 1);
  const found = list[index];
  if (!found) return;
  const key = Object.keys(found)[field % Object.keys(found).length] ?? '';
  if (what === 'copy') {
    const from = new Map<string, unknown>(Object.entries(list[other % list.length] ?? {}));
    list[index] = { ...found, [key]: from.get(key) };
  } else if (what === 'set') list[index] = { ...found, [key]: value };
  else if (what === 'forget') list[index] = Object.fromEntries(Object.entries(found).filter(([name]) => name !== key));
  else list.splice(index, 1, ...(what === 'repeat' ? [found, found] : []));
}

function keyOf(section: SectionName, record: object): string {
  const fields = new Map<string, unknown>(Object.entries(record));
  const names = { replicas: ['blob_id', 'backend_id'], policies: ['file_class'] };
  const key = section === 'replicas' || section === 'policies' ? names[section] : ['id'];
  return key.map((name) => String(fields.get(name))).join(' ');
}

test('whatever document is called valid can be put into the live tables', async () => {
  const seen = { valid: 0, invalid: 0 };
  await fc.assert(
    fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 2 }), async (changes) => {
      const records = sampleRecords({ directories: 3, files: 3 });
      for (const one of changes) changeRecords(records, one);
      for (const section of sectionNames) {
        const list: object[] = records[section];
        list.sort((one, other) => (keyOf(section, one) < keyOf(section, other) ? -1 : 1));
      }
      const { number, valid, errors } = await stage(documentOf(records));
      seen[valid ? 'valid' : 'invalid'] += 1;
      expect(valid).toBe(errors.length === 0);
      if (number === null) return;
      try {
        await insert(number);
      } finally {
        await drop(number);
      }
    }),
    { numRuns: 200 },
  );
  expect(Math.min(seen.valid, seen.invalid)).toBeGreaterThan(10);
}, 120_000);
