import { afterAll, beforeAll, expect, test } from '@jest/globals';
import fc from 'fast-check';
import type { ClientBase } from 'pg';
import { dropStagedTables, stagedTable } from '../document/staged-tables.ts';
import type { StagedTable } from '../document/staged-tables.ts';
import { sectionChanges } from './section-changes.ts';
import { startTestPlans } from './test-plans.ts';
import type { TestPlans } from './test-plans.ts';

let plans: TestPlans;
beforeAll(async () => {
  plans = await startTestPlans();
});
afterAll(() => plans.close());

test('a document of what is there changes nothing', async () => {
  const number = await plans.stageLive();
  const none = { create: 0n, update: 0n, remove: 0n };
  expect(await plans.run((client) => sectionChanges(client, number))).toEqual([
    { section: 'directories', ...none, unchanged: 6n },
    { section: 'files', ...none, unchanged: 20n },
    { section: 'blobs', ...none, unchanged: 20n },
    { section: 'replicas', ...none, unchanged: 40n },
    { section: 'backends', ...none, unchanged: 2n },
    { section: 'policies', ...none, unchanged: 2n },
  ]);
});

/** How the records of a section can be changed, and what makes another one of a copy. */
interface Edits {
  table: StagedTable;
  where: string;
  changes: readonly string[];
  another: string;
}

const edits: Readonly<Record<string, Edits>> = {
  directories: {
    table: 'nodes',
    where: `kind = 'directory'`,
    changes: [`name = name || '!'`, `version = version + 1`, `parent_id = id`, `deleted_at = now(), purge_at = now()`],
    another: `id = gen_random_uuid()`,
  },
  files: {
    table: 'nodes',
    where: `kind = 'file'`,
    changes: [`name = ''`, `updated_at = now()`, `blob_id = gen_random_uuid()`, `size = 9`, `purged_at = now()`],
    another: `id = gen_random_uuid()`,
  },
  blobs: {
    table: 'blobs',
    where: `true`,
    changes: [`size = 9`, `sha256 = null`, `chunk_crc32c = '\\x00'`, `delete_after = now()`],
    another: `id = gen_random_uuid()`,
  },
  replicas: {
    table: 'replicas',
    where: `true`,
    changes: [`key = 'elsewhere'`, `state = 'missing'`, `state = 'corrupt'`, `created_at = '2001-01-01'`],
    another: `blob_id = gen_random_uuid()`,
  },
  backends: {
    table: 'backends',
    where: `true`,
    changes: [`name = 'x'`, `enabled = not enabled`, `is_default = not is_default`, `config = '{}'`],
    another: `id = gen_random_uuid()`,
  },
  policies: {
    table: 'policies',
    where: `true`,
    changes: [`replicas = 9`, `sync_replicas = 9`, `backends = '{}'`, `version = 9`],
    another: `file_class = md5(random()::text)`,
  },
};

interface Edit {
  section: string;
  kind: 'create' | 'update' | 'remove';
  which: number;
  how: number;
}

const anEdit = fc.record<Edit>({
  section: fc.constantFrom(...Object.keys(edits)),
  kind: fc.constantFrom('create', 'update', 'remove'),
  which: fc.nat(),
  how: fc.nat(),
});

/** Makes edits of a staged document, each of a record of its own, and counts them. */
async function edit(client: ClientBase, number: number, wanted: readonly Edit[]): Promise<Map<string, bigint>> {
  const made = new Map<string, bigint>();
  for (const section of Object.keys(edits)) {
    const { table, where, changes, another } = edits[section] ?? unknown(section);
    const staged = stagedTable(number, table);
    const { rows } = await client.query<{ position: number }>(`select position from ${staged} where ${where}`);
    const left = rows.map(({ position }) => position);
    for (const { kind, which, how } of wanted.filter((one) => one.section === section)) {
      const [position] = left.splice(which % Math.max(1, left.length), 1);
      if (position === undefined) continue;
      const here = `where position = ${position} and ${where}`;
      if (kind === 'remove') await client.query(`delete from ${staged} ${here}`);
      if (kind === 'update') await client.query(`update ${staged} set ${changes[how % changes.length]} ${here}`);
      if (kind === 'create') {
        await client.query(`create temp table copied on commit drop as select * from ${staged} ${here}`);
        await client.query(`update copied set position = -1, ${another}`);
        await client.query(`insert into ${staged} select * from copied`);
        await client.query(`drop table copied`);
      }
      made.set(`${section} ${kind}`, (made.get(`${section} ${kind}`) ?? 0n) + 1n);
    }
  }
  return made;
}

function unknown(section: string): never {
  throw new Error(`no section ${section}`);
}

test('random edits of a document are counted one by one', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(anEdit, { maxLength: 15 }), async (wanted) => {
      const number = await plans.stageLive();
      const [made, found] = await plans.run(async (client) => [
        await edit(client, number, wanted),
        await sectionChanges(client, number),
      ]);
      await plans.run((client) => dropStagedTables(client, number));
      for (const { section, create, update, remove } of found) {
        const expected = ['create', 'update', 'remove'].map((kind) => made.get(`${section} ${kind}`) ?? 0n);
        expect([section, create, update, remove]).toEqual([section, ...expected]);
      }
      expect(found.map(({ update = 0n, remove = 0n, unchanged = 0n }) => update + remove + unchanged)).toEqual([
        6n,
        20n,
        20n,
        40n,
        2n,
        2n,
      ]);
    }),
    { numRuns: 40 },
  );
});
