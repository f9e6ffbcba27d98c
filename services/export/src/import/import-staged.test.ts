import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import { stagedTable } from '../document/staged-tables.ts';
import {
  addDirectory,
  addFile,
  importInto,
  miscounted,
  snapshotOf,
  stageLive,
  startTestMetadata,
} from './test-import.ts';
import type { TestMetadata } from './test-import.ts';

let system: TestMetadata;
beforeAll(async () => {
  system = await startTestMetadata();
});
afterAll(() => system.close());

let root: string;
beforeEach(async () => {
  root = await addDirectory(system.admin, newId());
});

const known = (): string[] => [system.backendId];
const file = (name: string, parentId = root): ReturnType<typeof addFile> =>
  addFile(system.admin, { name, parentId, backendId: system.backendId });

async function sql(text: string, values: unknown[] = []): Promise<Record<string, unknown>[]> {
  return (await system.admin.query(text, values)).rows;
}

/** Stages what is, changes it by `change`, imports, and gives what was and what is. */
async function roundTrip(change: () => Promise<unknown>): Promise<{ before: object; after: object }> {
  const before = await snapshotOf(system.admin);
  const number = await stageLive(system.database);
  await change();
  await importInto(system.database, { number, knownBackends: known() });
  expect(await miscounted(system.admin)).toEqual([]);
  return { before, after: await snapshotOf(system.admin) };
}

describe('the tree', () => {
  test.each([
    [
      'two files that swapped their names',
      async () => {
        const [one, other] = [await file('one'), await file('other')];
        return async () => {
          await sql(`update catalog.nodes set name = 'x' where id = $1`, [one.id]);
          await sql(`update catalog.nodes set name = 'one', version = version + 1 where id = $1`, [other.id]);
          await sql(`update catalog.nodes set name = 'other', version = version + 1 where id = $1`, [one.id]);
        };
      },
    ],
    [
      'directories that were moved into each other',
      async () => {
        const outer = await addDirectory(system.admin, 'outer', root);
        const inner = await addDirectory(system.admin, 'inner', outer);
        return async () => {
          await sql(`update catalog.nodes set parent_id = $2 where id = $1`, [inner, root]);
          await sql(`update catalog.nodes set parent_id = $2 where id = $1`, [outer, inner]);
        };
      },
    ],
    [
      'a new directory that took the name, and the children, of an old one',
      async () => {
        const old = await addDirectory(system.admin, 'photos', root);
        const inside = await file('inside', old);
        return async () => {
          await sql(`update catalog.nodes set name = 'old' where id = $1`, [old]);
          const made = await addDirectory(system.admin, 'photos', root);
          await sql(`update catalog.nodes set parent_id = $2 where id = $1`, [inside.id, made]);
          await file('later', made);
        };
      },
    ],
    [
      'a file in the bin, and one that was in it',
      async () => {
        const [kept, binned] = [await file('same'), await file('other')];
        const bin = `update catalog.nodes set deleted_at = now(), purge_at = now() where id = $1`;
        await sql(bin, [binned.id]);
        return async () => {
          await sql(bin, [kept.id]);
          await sql(`update catalog.nodes set deleted_at = null, purge_at = null, name = 'same' where id = $1`, [
            binned.id,
          ]);
        };
      },
    ],
    [
      'files that were deleted for good, and files that came since',
      async () => {
        const lost = await file('lost');
        return async () => {
          await sql(`delete from catalog.nodes where id = $1`, [lost.id]);
          await sql(`delete from catalog.replicas where blob_id = $1`, [lost.blobId]);
          await sql(`delete from catalog.blobs where id = $1`, [lost.blobId]);
          await file('lost');
        };
      },
    ],
    [
      'a file whose content has another size',
      async () => {
        const grown = await file('grown');
        return async () => {
          await sql(`update catalog.blobs set size = 7 where id = $1`, [grown.blobId]);
          await sql(`update catalog.nodes set size = 7 where id = $1`, [grown.id]);
          await sql(
            `update catalog.replica_counts set bytes = bytes + 2 where backend_id = $1 and slot = (
            select min(slot) from catalog.replica_counts where backend_id = $1)`,
            [system.backendId],
          );
        };
      },
    ],
    [
      'policies and a backend',
      async () => async () => {
        const far = newId();
        await sql(`insert into registry.backends (id, name, type, config) values ($1, $2, 's3', '{}')`, [far, newId()]);
        await sql(`update placement.policies set replicas = 2, version = version + 1 where file_class = 'default'`);
        await sql(`insert into placement.policy_backends values ('default', 1, $1)`, [far]);
        await sql(`insert into placement.policies (file_class, replicas) values ('video', 1)`);
        await sql(`insert into placement.policy_backends values ('video', 0, $1)`, [far]);
        await addFile(system.admin, { name: 'far', parentId: root, backendId: far });
      },
    ],
  ])('comes back: %s', async (_what, make) => {
    const change = await make();
    const { before, after } = await roundTrip(change);
    expect(after).toEqual(before);
  });

  test('nothing is written where nothing differs, the second time', async () => {
    await file('same');
    await roundTrip(async () => undefined);
    const written = `select xmin, id::text as id from catalog.nodes union all select xmin, id::text from catalog.blobs
      union all select xmin, blob_id::text from catalog.replicas union all select xmin, id::text from registry.backends
      union all select xmin, file_class from placement.policies order by id`;
    const before = await sql(written);
    await roundTrip(async () => undefined);
    expect(await sql(written)).toEqual(before);
  });
});

describe('replicas', () => {
  test.each([
    ['available', 'unverified'],
    ['unverified', 'unverified'],
    ['copying', 'unverified'],
    ['removing', 'unverified'],
    ['corrupt', 'corrupt'],
    ['missing', 'missing'],
  ])('that are %s come in %s, and nobody has read them', async (state, wanted) => {
    const { blobId } = await file('a');
    await sql(`update catalog.replicas set state = $2 where blob_id = $1`, [blobId, state]);
    await roundTrip(async () => undefined);
    expect(await sql(`select state, verified_at from catalog.replicas where blob_id = $1`, [blobId])).toEqual([
      { state: wanted, verified_at: null },
    ]);
  });

  test('of content that is to go stay claimed', async () => {
    const { blobId, id } = await file('a');
    await sql(`delete from catalog.nodes where id = $1`, [id]);
    await sql(`update catalog.blobs set delete_after = now() where id = $1`, [blobId]);
    await sql(`update catalog.replicas set state = 'removing' where blob_id = $1`, [blobId]);
    await roundTrip(async () => undefined);
    expect(await sql(`select state from catalog.replicas where blob_id = $1`, [blobId])).toEqual([
      { state: 'removing' },
    ]);
  });
});

describe('backends', () => {
  async function s3(name = newId()): Promise<string> {
    const id = newId();
    await sql(
      `insert into registry.backends (id, name, type, config, marked, health_status, health_checked_at)
       values ($1, $2, 's3', '{"endpoint": "http://good", "bucket": "b", "region": "r"}', true, 'healthy', now())`,
      [id, name],
    );
    await sql(
      `insert into registry.backend_secrets (backend_id, field, key_id, nonce, sealed)
       values ($1, 'secret_access_key', 'k', '\\x000000000000000000000000', '\\x00')`,
      [id],
    );
    return id;
  }
  const facts = `select name, enabled, health_status, marked, secrets_version,
    (select count(*)::int from registry.backend_secrets s where s.backend_id = b.id) as secrets, config ->> 'endpoint' as endpoint
    from registry.backends b where id = $1`;

  test('that lie where they lay keep secrets and health, and are enabled as the document says', async () => {
    const id = await s3();
    const number = await stageLive(system.database);
    await sql(`update registry.backends set name = $2, enabled = false, version = version + 1 where id = $1`, [
      id,
      newId(),
    ]);
    await importInto(system.database, { number, knownBackends: [...known(), id] });
    expect(await sql(facts, [id])).toMatchObject([
      { enabled: true, health_status: 'healthy', marked: true, secrets: 1, secrets_version: '1' },
    ]);
    expect(await sql(`select version from registry.backends where id = $1`, [id])).toEqual([{ version: '3' }]);
  });

  test('of which the document names another place come in disabled, without secrets', async () => {
    const id = await s3();
    const number = await stageLive(system.database);
    await system.admin.query(
      `update ${stagedTable(number, 'backends')} set config = config || '{"endpoint": "http://evil"}' where id = $1`,
      [id],
    );
    await importInto(system.database, { number, knownBackends: known() });
    expect(await sql(facts, [id])).toMatchObject([
      { enabled: false, health_status: 'unknown', secrets: 0, secrets_version: '2', endpoint: 'http://evil' },
    ]);
  });

  test('that are gone come back disabled, and swap names', async () => {
    const names = [newId(), newId()];
    const [one, other] = [await s3(names[0]), await s3(names[1])];
    const number = await stageLive(system.database);
    await sql(`delete from registry.backends where id = $1`, [one]);
    await sql(`update registry.backends set name = $2 where id = $1`, [other, names[0]]);
    await importInto(system.database, { number, knownBackends: [...known(), other] });
    expect(await sql(facts, [one])).toMatchObject([{ name: names[0], enabled: false, secrets: 0 }]);
    expect(await sql(facts, [other])).toMatchObject([{ name: names[1], enabled: true, secrets: 1 }]);
  });

  test('that another one follows as the default', async () => {
    const number = await stageLive(system.database);
    const made = newId();
    await sql(`update registry.backends set is_default = false where is_default`);
    await sql(
      `insert into registry.backends (id, name, type, config, is_default) values ($1, $2, 'local_directory', '{}', true)`,
      [made, newId()],
    );
    await importInto(system.database, { number, knownBackends: known() });
    expect(await sql(`select id from registry.backends where is_default`)).toEqual([{ id: system.backendId }]);
  });
});

describe('uploads', () => {
  async function upload(more: Record<string, unknown> = {}): Promise<string> {
    const row = {
      id: newId(),
      user_id: newId(),
      file_id: newId(),
      blob_id: newId(),
      backend_id: system.backendId,
      ...more,
    };
    const names = Object.keys(row);
    await sql(
      `insert into upload.uploads (${names.join()}, expires_at)
       values (${names.map((_name, i) => `$${i + 1}`).join()}, now() + interval '1 hour')`,
      Object.values(row),
    );
    return row.id;
  }
  const stateOf = `select state, backend_id, discarded_at is not null as discarded from upload.uploads where id = $1`;

  test('into a directory that is gone end as by expiry, others go on', async () => {
    const number = await stageLive(system.database);
    const gone = await addDirectory(system.admin, 'gone', root);
    const [open, finalizing, kept, plain] = [
      await upload({ directory_id: gone }),
      await upload({ directory_id: gone, state: 'finalizing' }),
      await upload({ directory_id: root }),
      await upload(),
    ];
    await importInto(system.database, { number, knownBackends: known() });
    const backend = { backend_id: system.backendId, discarded: false };
    expect(await sql(stateOf, [open])).toEqual([{ state: 'ended', ...backend }]);
    expect(await sql(stateOf, [finalizing])).toEqual([{ state: 'abandoned', ...backend }]);
    expect(await sql(stateOf, [kept])).toEqual([{ state: 'open', ...backend }]);
    expect(await sql(stateOf, [plain])).toEqual([{ state: 'open', ...backend }]);
  });

  test('staged on a backend that is gone are forgotten', async () => {
    const number = await stageLive(system.database);
    const gone = newId();
    await sql(`insert into registry.backends (id, name, type, config) values ($1, $2, 's3', '{}')`, [gone, newId()]);
    await sql(
      `insert into placement.unknown_objects (backend_id, key, size, modified_at, first_run, last_run)
      values ($1, 'blobs/x', 1, now(), $2, $2)`,
      [gone, newId()],
    );
    const ids = [];
    for (const state of ['open', 'finalizing', 'abandoned', 'ended'])
      ids.push(await upload({ backend_id: gone, state }));
    await importInto(system.database, { number, knownBackends: known() });
    for (const id of ids) {
      expect(await sql(stateOf, [id])).toEqual([{ state: 'ended', backend_id: null, discarded: true }]);
    }
    expect(await sql(`select from registry.backends where id = $1`, [gone])).toEqual([]);
  });
});

describe('jobs', () => {
  async function job(kind: string, params: object, state = 'pending'): Promise<string> {
    const id = newId();
    await sql(
      `insert into jobs.jobs (id, kind, params, state, lease_until)
       values ($1, $2, $3, $4, case when $4 = 'running' then now() + interval '1 hour' end)`,
      [id, kind, JSON.stringify(params), state],
    );
    return id;
  }
  const stateOf = async (id: string): Promise<unknown> =>
    (await sql(`select state from jobs.jobs where id = $1`, [id]))[0]?.['state'];

  test('about what is gone are cancelled, with their events', async () => {
    const kept = await file('kept');
    const number = await stageLive(system.database);
    const gone = await file('gone');
    const verify = ({ blobId }: { blobId: string }): Promise<string> =>
      job('verify_blob', { blob_id: blobId, backend_id: system.backendId, sha256: hashes.get(blobId) });
    const hashes = new Map(
      (await sql(`select id, encode(sha256, 'hex') as sha256 from catalog.blobs`)).map((row) => [
        row['id'],
        row['sha256'],
      ]),
    );
    const ending = [
      await job('place_blob', { blob_id: gone.blobId }),
      await job('remove_blob', { blob_id: gone.blobId }),
      await verify(gone),
      await job('health_check', { backend_id: newId() }),
      await job('remove_blob', { unknown_blobs: [newId()], despite_hold: true }, 'running'),
      await job('full_reconcile', { remove_unknown: true }, 'running'),
    ];
    const staying = [
      await job('place_blob', { blob_id: kept.blobId }),
      await verify(kept),
      await job('health_check', { backend_id: system.backendId }),
      await job('full_reconcile', {}),
      await job('purge_recycle_bin', {}),
      await job('place_blob', { blob_id: 'odd' }, 'running'),
    ];
    const made = await importInto(system.database, { number, knownBackends: known() });
    for (const id of ending) {
      expect([id, await stateOf(id)]).toEqual([id, 'cancelled']);
      expect(
        await sql(`select from jobs.outbox where data ->> 'id' = $1 and subject like '%.cancelled'`, [id]),
      ).toHaveLength(1);
    }
    for (const id of staying) expect(await stateOf(id)).not.toBe('cancelled');
    expect(await sql(`select kind, state, params from jobs.jobs where id = $1`, [made])).toEqual([
      { kind: 'full_reconcile', state: 'pending', params: { reason: 'import' } },
    ]);
    expect(await sql(`select subject from jobs.outbox where data ->> 'id' = $1`, [made])).toHaveLength(1);
  });

  test('that remove content wait for 7 days', async () => {
    await roundTrip(async () => undefined);
    const [held] = await sql(
      `select removals_held_until > now() + interval '167 hours' as held from placement.removal_hold`,
    );
    expect(held).toEqual({ held: true });
  });
});

describe('the identity of the installation', () => {
  test('stays where it holds anything', async () => {
    const [before] = await sql(`select id from export.instance`);
    const number = await stageLive(system.database);
    await importInto(system.database, { number, knownBackends: known(), instanceId: newId() });
    expect(await sql(`select id from export.instance`)).toEqual([before]);
  });

  test('is that of the document where it holds nothing', async () => {
    const fresh = await startTestMetadata();
    try {
      await addDirectory(fresh.admin, 'a');
      const number = await stageLive(fresh.database);
      await fresh.admin.query(`delete from catalog.nodes where id <> '${rootDirectoryId}'`);
      const instanceId = newId();
      await importInto(fresh.database, { number, knownBackends: [fresh.backendId], instanceId });
      expect((await fresh.admin.query(`select id from export.instance`)).rows).toEqual([{ id: instanceId }]);
    } finally {
      await fresh.close();
    }
  });
});
