import { describe, expect, test } from '@jest/globals';
import { rootDirectoryId } from '@stowage/common/ids';
import { checkIntegrity } from './check-integrity.ts';
import { idOf, startTestStore } from './test-store.ts';
import type { TestStore } from './test-store.ts';

const files = 60;

async function inStore<R>(work: (store: TestStore) => Promise<R>): Promise<R> {
  const store = await startTestStore(files);
  try {
    return await work(store);
  } finally {
    await store.close();
  }
}

function check({ database }: TestStore, signal = new AbortController().signal) {
  return checkIntegrity(database.bulk, signal);
}

/** Does to the metadata what no service could: constraints, unique indexes and triggers are away. */
async function damage({ sql }: TestStore, statements: string): Promise<void> {
  await sql(`
    do $$ declare found record; begin
      for found in select conrelid::regclass as place, conname from pg_constraint
        where contype in ('c', 'f') and connamespace::regnamespace::text in ('catalog', 'registry', 'placement', 'jobs', 'upload')
      loop execute format('alter table %s drop constraint %I', found.place, found.conname); end loop;
      for found in select indexrelid::regclass as name from pg_index join pg_class c on c.oid = indexrelid
        where indisunique and not indisprimary and c.relnamespace::regnamespace::text in ('catalog', 'registry')
          and not exists (select from pg_constraint where conindid = indexrelid)
      loop execute format('drop index %s', found.name); end loop;
    end $$;
    alter table registry.backends drop constraint if exists backends_name_key;
    alter table catalog.replicas disable trigger user;
    ${statements}`);
}

const root = `'${rootDirectoryId}'`;
const file = (number: number): string => `'${idOf('ff', number)}'`;
const blob = (number: number): string => `'${idOf('cc', number)}'`;
const directory = (number: number): string => `'${idOf('dd', number)}'`;
const backend = (number: number): string => `'${idOf('bb', number)}'`;
const nowhere = `'${idOf('99', 9)}'`;

interface Planted {
  statements: string;
  found: Record<string, (string | null)[]>;
}

/** Each kind of damage, and all that is told of it: the kinds, with the ids. */
const kinds: Record<string, Planted> = {
  'a file in a directory that does not exist': {
    statements: `update catalog.nodes set parent_id = ${nowhere} where id = ${file(1)}`,
    found: { node_without_parent: [idOf('ff', 1)] },
  },
  'a directory below one that does not exist': {
    statements: `update catalog.nodes set parent_id = ${nowhere} where id = ${directory(5)}`,
    found: { node_without_parent: [idOf('dd', 5)], unreachable: [idOf('dd', 5), idOf('dd', 6)] },
  },
  'a file in a file': {
    statements: `update catalog.nodes set parent_id = ${file(2)} where id = ${file(1)}`,
    found: { parent_is_file: [idOf('ff', 1)] },
  },
  'a file in no place at all': {
    statements: `update catalog.nodes set parent_id = null where id = ${file(1)}`,
    found: { node_without_place: [idOf('ff', 1)] },
  },
  'directories in a cycle, with one below them': {
    statements: `update catalog.nodes set parent_id = ${directory(5)} where id = ${directory(3)}`,
    found: { cycle: [3, 4, 5].map((number) => idOf('dd', number)), unreachable: [idOf('dd', 6)] },
  },
  'a directory in itself': {
    statements: `update catalog.nodes set parent_id = id where id = ${directory(6)}`,
    found: { cycle: [idOf('dd', 6)] },
  },
  'no root': {
    statements: `delete from catalog.nodes where id = ${root}`,
    found: {
      no_root: [rootDirectoryId],
      node_without_parent: [idOf('dd', 1)],
      unreachable: [1, 2, 3, 4, 5, 6].map((number) => idOf('dd', number)),
    },
  },
  'the root in the recycle bin': {
    statements: `update catalog.nodes set deleted_at = now(), purge_at = now() where id = ${root}`,
    found: { root_misplaced: [rootDirectoryId] },
  },
  'one name twice': {
    statements: `update catalog.nodes set name = 'file 1' where id = ${file(7)}`,
    found: { name_clash: [idOf('ff', 1), idOf('ff', 7)] },
  },
  'names that differ by their form only': {
    statements: `update catalog.nodes set name = case id when ${file(1)} then U&'caf\\00e9' else U&'cafe\\0301' end
      where id in (${file(1)}, ${file(7)})`,
    found: { name_clash: [idOf('ff', 1), idOf('ff', 7)], name_invalid: [idOf('ff', 7)] },
  },
  'a name with a slash': {
    statements: `update catalog.nodes set name = '../etc' where id = ${file(1)}`,
    found: { name_invalid: [idOf('ff', 1)] },
  },
  'recycled and never to be purged': {
    statements: `update catalog.nodes set deleted_at = now() where id = ${file(1)}`,
    found: { bin_contradiction: [idOf('ff', 1)] },
  },
  'a file with no content': {
    statements: `update catalog.nodes set blob_id = null where id = ${file(1)}`,
    found: { file_without_blob: [idOf('ff', 1)], node_fields: [idOf('ff', 1)], blob_unused: [idOf('cc', 1)] },
  },
  'a file whose content is not known': {
    statements: `delete from catalog.blobs where id = ${blob(1)}`,
    found: {
      file_without_blob: [idOf('ff', 1)],
      replica_without_blob: [idOf('cc', 1), idOf('cc', 1)],
      usage_differs: [idOf('bb', 1), idOf('bb', 2)],
    },
  },
  'a file of another size than its content': {
    statements: `update catalog.nodes set size = size + 1 where id = ${file(1)}`,
    found: { file_size_differs: [idOf('ff', 1)] },
  },
  'content of another size than its checksums': {
    statements: `update catalog.blobs set chunk_crc32c = chunk_crc32c || '\\x00' where id = ${blob(1)}`,
    found: { chunk_checksums: [idOf('cc', 1)] },
  },
  'content without a digest': {
    statements: `update catalog.blobs set sha256 = null where id = ${blob(1)}`,
    found: { blob_without_digest: [idOf('cc', 1)] },
  },
  'content of no file that would stay for ever': {
    statements: `delete from catalog.nodes where id = ${file(1)}`,
    found: { blob_unused: [idOf('cc', 1)] },
  },
  'content of a file that is to be removed': {
    statements: `update catalog.blobs set delete_after = now() where id = ${blob(1)}`,
    found: { blob_given_up: [idOf('cc', 1)] },
  },
  'content that lies nowhere': {
    statements: `delete from catalog.replicas where blob_id = ${blob(1)}`,
    found: { blob_without_replica: [idOf('cc', 1)], usage_differs: [idOf('bb', 1), idOf('bb', 2)] },
  },
  'content whose replicas are all bad': {
    statements: `update catalog.replicas set state = case backend_id when ${backend(1)} then 'corrupt' else 'missing' end
      where blob_id = ${blob(1)}`,
    found: { blob_unreadable: [idOf('cc', 1)] },
  },
  'a replica on a backend that does not exist': {
    statements: `update catalog.replicas set backend_id = ${nowhere} where blob_id = ${blob(1)} and backend_id = ${backend(2)}`,
    found: { replica_on_unknown_backend: [idOf('cc', 1)], usage_differs: [idOf('99', 9), idOf('bb', 2)] },
  },
  'a replica under the key of another': {
    statements: `update catalog.replicas set key = 'blobs/02/${idOf('cc', 2)}' where blob_id = ${blob(1)} and backend_id = ${backend(2)}`,
    found: { replica_key_differs: [idOf('cc', 1)] },
  },
  'a replica in no known state': {
    statements: `update catalog.replicas set state = 'lost' where blob_id = ${blob(1)} and backend_id = ${backend(2)}`,
    found: { replica_state: [idOf('cc', 1)] },
  },
  'counts that went astray': {
    statements: `update catalog.replica_counts set bytes = bytes + 1
      where (backend_id, slot) = (select backend_id, slot from catalog.replica_counts where backend_id = ${backend(1)} limit 1)`,
    found: { usage_differs: [idOf('bb', 1)] },
  },
  'two default backends': {
    statements: `update registry.backends set is_default = true`,
    found: { default_backends: [null] },
  },
  'no default backend': {
    statements: `update registry.backends set is_default = false`,
    found: { no_default_backend: [null] },
  },
  'backends of one name': {
    statements: `update registry.backends set name = 'disk'`,
    found: { backend_name_clash: [idOf('bb', 1), idOf('bb', 2)] },
  },
  'no default policy': {
    statements: `delete from placement.policies`,
    found: { no_default_policy: ['default'], backend_of_no_policy: ['default', 'default'] },
  },
  'a policy that names an unknown backend': {
    statements: `update placement.policy_backends set backend_id = ${nowhere} where backend_id = ${backend(2)}`,
    found: { policy_names_unknown_backend: ['default'] },
  },
  'a policy that wants more copies than it names backends': {
    statements: `update placement.policies set replicas = 3`,
    found: { policy_contradiction: ['default'] },
  },
  'an upload that nobody ends': {
    statements: `update upload.uploads set expires_at = now() - interval '2 days' where id = '${idOf('aa', 4)}'`,
    found: { upload_stuck: [idOf('aa', 4)] },
  },
  'a job that nobody works on': {
    statements: `update jobs.jobs set lease_until = now() - interval '2 hours' where id = '${idOf('ee', 1)}'`,
    found: { job_without_worker: [idOf('ee', 1)] },
  },
  'a job that ended and did not': {
    statements: `update jobs.jobs set finished_at = now() where id = '${idOf('ee', 2)}'`,
    found: { job_contradiction: [idOf('ee', 2)] },
  },
};

describe('the look at all metadata', () => {
  test('finds nothing in a busy installation, and counts what there is', async () => {
    const { ok, problems, problemCount, counts } = await inStore((store) => check(store));
    expect({ ok, problems, problemCount }).toEqual({ ok: true, problems: [], problemCount: 0n });
    expect(counts).toEqual([
      { section: 'directories', count: 9n },
      { section: 'files', count: 60n },
      { section: 'blobs', count: 62n },
      { section: 'replicas', count: 121n },
      { section: 'backends', count: 2n },
      { section: 'policies', count: 1n },
    ]);
  });

  test.each(Object.entries(kinds))('finds %s, and nothing else', async (_name, { statements, found }) => {
    const {
      ok,
      problems = [],
      problemCount,
    } = await inStore(async (store) => {
      await damage(store, statements);
      return check(store);
    });
    const byKind: Record<string, (string | null)[]> = {};
    for (const { kind = '', id = '' } of problems) (byKind[kind] ??= []).push(id === '' ? null : id);
    for (const ids of Object.values(byKind)) ids.sort();
    expect(byKind).toEqual(found);
    expect({ ok, problemCount }).toEqual({ ok: false, problemCount: BigInt(problems.length) });
    for (const { detail } of problems) expect(detail).toMatch(/^\S.*\.$|\?.*\.$/);
  });

  test('tells of objects that no metadata knows while removals are held, and only then', async () => {
    await inStore(async (store) => {
      await store.sql(`
        insert into placement.unknown_objects (backend_id, key, size, modified_at, first_run, last_run)
        select ${backend(1)}, key, 5, now(), ${nowhere}, ${nowhere} from unnest(array['blobs/09/${idOf('99', 9)}', 'blobs/zz/stray',
          'blobs/01/${idOf('cc', 1)}']) as key`);
      expect(await check(store)).toMatchObject({ ok: true });
      await store.sql(`insert into placement.removal_hold (removals_held_until) values (now() + interval '7 days')`);
      const { problems = [] } = await check(store);
      expect(problems.map(({ kind, id }) => `${kind} ${id}`)).toEqual([
        `unknown_object ${idOf('99', 9)}`,
        'unknown_object stray',
      ]);
    });
  });

  test('tells of 1,000 problems at most, some of each kind, and counts all', async () => {
    await inStore(async (store) => {
      await damage(
        store,
        `insert into catalog.blobs (id, size, sha256, chunk_crc32c)
           select gen_random_uuid(), 0, sha256(''), '' from generate_series(1, 3000);
         update catalog.nodes set size = size + 1 where kind = 'file';
         update registry.backends set is_default = false`,
      );
      const { problems = [], problemCount } = await check(store);
      expect(problemCount).toBe(3_061n);
      const byKind = Map.groupBy(problems, ({ kind }) => kind);
      expect([...byKind].map(([kind, some]) => [kind, some.length])).toEqual([
        ['no_default_backend', 1],
        ['file_size_differs', 60],
        ['blob_unused', 939],
      ]);
    });
  });

  test('ends when nobody waits any more, and the connection is free again', async () => {
    await inStore(async (store) => {
      const gone = new AbortController();
      await store.sql('begin; lock table catalog.nodes in access exclusive mode');
      const asked = check(store, gone.signal);
      await expect(Promise.race([asked, Promise.resolve('waits')])).resolves.toBe('waits');
      gone.abort(new Error('nobody waits'));
      await expect(asked).rejects.toThrow('nobody waits');
      expect(store.database.bulk.totalCount).toBe(0);
    });
  });
});
