import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import { stateDigest } from './state-digest.ts';
import { farId, localId, startTestPlans } from './test-plans.ts';
import type { TestPlans } from './test-plans.ts';

let plans: TestPlans;
beforeAll(async () => {
  plans = await startTestPlans();
});
afterAll(() => plans.close());

const digest = (): Promise<string> => plans.run(stateDigest);

/** What a change leaves behind, each on its own; `$1` is an id. */
const changes: Readonly<Record<string, string>> = {
  'a directory is made': `insert into catalog.nodes (id, parent_id, kind, name) values ($1, '${rootDirectoryId}', 'directory', 'new')`,
  'a file is renamed': `update catalog.nodes set name = 'renamed' where name = 'file 1' and $1::uuid is not null`,
  'a file is moved': `update catalog.nodes set parent_id = '${rootDirectoryId}' where name = 'file 2' and id = (select min(id::text)::uuid from catalog.nodes where name = 'file 2') and $1::uuid is not null`,
  'a file goes to the bin': `update catalog.nodes set deleted_at = now(), purge_at = now() where name = 'file 0' and $1::uuid is not null`,
  'a file is purged': `update catalog.nodes set purged_at = now() where name = 'file 0' and $1::uuid is not null`,
  'a version rises': `update catalog.nodes set version = version + 1 where name = 'directory 1' and $1::uuid is not null`,
  'content is another': `update catalog.nodes set size = 4 where name = 'file 3' and $1::uuid is not null`,
  'a node is gone': `delete from catalog.nodes where name = 'new' and $1::uuid is not null`,
  'a policy is saved': `update placement.policies set replicas = 1, version = version + 1 where file_class = 'default' and $1::uuid is not null`,
  'backends of a policy change places': `update placement.policy_backends set position = 3 where position = 1 and file_class = 'default' and $1::uuid is not null`,
  'a policy is removed': `delete from placement.policies where file_class = 'photo' and $1::uuid is not null`,
  'a backend is made': `insert into registry.backends (id, name, type, config) values ($1, 'more', 's3', '{"bucket": "more"}')`,
  'a backend is disabled': `update registry.backends set enabled = false where name = 'more' and $1::uuid is not null`,
  'a configuration is changed': `update registry.backends set config = config || '{"region": "x"}' where name = 'more' and $1::uuid is not null`,
  'a secret is changed': `update registry.backends set secrets_version = secrets_version + 1, version = version + 1 where name = 'more' and $1::uuid is not null`,
  'a backend has a secret more': `insert into registry.backend_secrets (backend_id, field, key_id, nonce, sealed) select id, 'session_token', 'k', '\\x000000000000000000000000', '\\x00' from registry.backends where name = 'more' and $1::uuid is not null`,
  'a backend is gone': `delete from registry.backends where name = 'more' and $1::uuid is not null`,
};

const looks: Readonly<Record<string, string>> = {
  'a health check': `update registry.backends set health_status = 'unhealthy', health_checked_at = now(), health_detail = 'away', marked = true`,
  'a verification': `update catalog.replicas set verified_at = now(), state = 'corrupt' where backend_id = '${farId}'`,
  'a copy': `delete from catalog.replicas where backend_id = '${localId}'`,
  'a removal of what no file has': `update catalog.blobs set delete_after = now()`,
  'a job': `insert into jobs.jobs (id, kind) values (gen_random_uuid(), 'scrub')`,
  'secrets sealed under another key': `update registry.backend_secrets set key_id = 'k2', sealed = '\\x01', sealed_at = now()`,
  'what PostgreSQL moves about': `update catalog.nodes set name = name`,
};

test('is another one after every change', async () => {
  let before = await digest();
  for (const [what, sql] of Object.entries(changes)) {
    const { rowCount } = await plans.admin.query(sql, [newId()]);
    expect([what, rowCount]).not.toEqual([what, 0]);
    const after = await digest();
    expect([what, after]).not.toEqual([what, before]);
    before = after;
  }
});

test('is the same after what the service does by itself', async () => {
  const before = await digest();
  for (const [what, sql] of Object.entries(looks)) {
    const { rowCount } = await plans.admin.query(sql);
    expect([what, rowCount]).not.toEqual([what, 0]);
    expect([what, await digest()]).toEqual([what, before]);
  }
});

test('tells which of two rows has which value', async () => {
  const swap = `update catalog.nodes n set version = case name when 'file 1' then 7 else 8 end where name in ('file 1', 'file 2')`;
  await plans.admin.query(swap);
  const one = await digest();
  await plans.admin.query(swap.replace('then 7 else 8', 'then 8 else 7'));
  expect(await digest()).not.toBe(one);
});
