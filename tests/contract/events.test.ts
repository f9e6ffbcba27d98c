import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { expectStatus, logIn, until } from '@stowage/tests/support/client';
import type { Client } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { JobTable } from '@stowage/tests/support/job-table';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';
import { randomUUID } from 'node:crypto';
import pg from 'pg';

/** Notes each change of a job's state, of a file or directory, and each event, with the transaction that made it. */
const watch = `
  create table public.seen (tx xid8 not null default pg_current_xact_id(), what text, id text, state text, attempt int);
  grant usage on schema public to public;
  grant insert on public.seen to public;
  create function public.see() returns trigger language plpgsql as $$ begin
    -- Not what the test itself puts there.
    if current_user not like 'stowage\\_%' then return null; end if;
    if tg_table_name = 'outbox' then
      insert into public.seen (what, id, state, attempt) values (split_part(new.subject, '.', 2) || ' event',
        new.data ->> 'id', split_part(new.subject, '.', -1), (new.data ->> 'attempt')::int);
    elsif tg_table_name = 'jobs' then
      insert into public.seen (what, id, state, attempt) values ('jobs change', new.id, new.state, new.attempt);
    else
      insert into public.seen (what, id) values ('files change', coalesce(new.id, old.id));
    end if;
    return null;
  end $$;
  create trigger seen after insert on jobs.outbox for each row execute function public.see();
  create trigger made after insert on jobs.jobs for each row execute function public.see();
  create trigger changed after update on jobs.jobs for each row
    when ((old.state, old.attempt) is distinct from (new.state, new.attempt)) execute function public.see();
  create trigger made after insert on catalog.nodes for each row execute function public.see();
  create trigger changed after update on catalog.nodes for each row
    when ((old.name, old.parent_id, old.deleted_at, old.purged_at) is distinct from
      (new.name, new.parent_id, new.deleted_at, new.purged_at)) execute function public.see();
  create trigger gone after delete on catalog.nodes for each row
    when (old.purged_at is null) execute function public.see();`;

let system: System;
let root: Client;
let database: pg.Client;
let jobs: JobTable;

beforeAll(async () => {
  system = await startSystem(mode(), { STOWAGE_JOB_INTERVAL: '1s' });
  root = await logIn(system.url);
  database = new pg.Client({ connectionString: system.databaseUrl });
  await database.connect();
  jobs = await JobTable.open(system.databaseUrl);
  await database.query(watch);
});
afterAll(async () => {
  await jobs.close();
  await database.end();
  await system.close();
});

/** Changes without an event in their transaction, and events without a change. */
async function difference(family: 'jobs' | 'files'): Promise<unknown[]> {
  const columns = family === 'jobs' ? 'tx, id, state, attempt' : 'distinct tx, id';
  const [changes, events] = ['change', 'event'].map(
    (word) => `(select ${columns} from public.seen where what = '${family} ${word}')`,
  );
  const { rows } = await database.query(
    `(select 'no event' as lacks, * from (${changes} except all ${events}) a)
     union all (select 'no change', * from (${events} except all ${changes}) b)`,
  );
  return rows;
}

async function states(): Promise<string[]> {
  const { rows } = await database.query<{ state: string }>(
    `select distinct state from public.seen where what = 'jobs change' order by state`,
  );
  return rows.map(({ state }) => state);
}

test('each change of a job’s state has one event, and each event a change, in one transaction', async () => {
  const failing = await jobs.insert('verify_blob', {});
  await until(async () => (await jobs.read(failing)).state === 'failed');
  expectStatus(await root.post(`/api/jobs/${failing}/retry`), 200);
  const file = await root.putFile(uniqueName(), 'content');
  const later = await jobs.insert('verify_blob', {
    ...(await jobs.verification(String(file['id']))),
    backend_id: randomUUID(),
  });
  await until(async () => (await jobs.read(later)).error_code !== null);
  expectStatus(await root.post(`/api/jobs/${later}/cancel`), 200);
  const { items } = expectStatus(await root.get('/api/backends'), 200).json;
  const policy = { backends: [items[0]['id']], replicas: 1 };
  expectStatus(await root.call('PUT', `/api/policies/placement/${uniqueName('c')}`, { body: policy }), 200);
  expectStatus(await root.post('/api/jobs/enqueue-health-checks'), 202);
  expectStatus(await root.post('/api/jobs/enqueue-full-reconcile'), 202);
  expectStatus(await root.post('/api/jobs/run-pending', { wait_seconds: 10 }), 200);
  await until(async () => (await states()).length === 5);
  expect(await difference('jobs')).toEqual([]);
});

test('each change of a file or a directory has an event, and each event a change, in one transaction', async () => {
  const [parent, child] = [await root.makeDirectory(uniqueName()), await root.makeDirectory(uniqueName())];
  const file = await root.putFile(uniqueName(), 'content');
  const large = await root.putFile(uniqueName(), 'x'.repeat(2 ** 21));
  const taken = expectStatus(
    await root.post(`/api/files/${large['id']}/rename`, { name: file['name'], on_conflict: 'rename' }),
    200,
  );
  expect(taken.json['name']).not.toBe(file['name']);
  for (const path of [`/api/files/${file['id']}`, `/api/directories/${child['id']}`]) {
    const target = path.startsWith('/api/files') ? 'directory_id' : 'parent_id';
    expectStatus(await root.post(`${path}/move`, { [target]: parent['id'], name: uniqueName() }), 200);
    expectStatus(await root.delete(path), 200);
    expectStatus(await root.post(`${path}/restore`), 200);
    expectStatus(await root.delete(path), 200);
    expectStatus(await root.delete(`${path}?permanent=true`), 204);
  }
  expectStatus(await root.post('/api/directories', { name: parent['name'] }), 409);
  expect(await difference('files')).toEqual([]);
  const { rows } = await database.query(`select count(*)::int as n from public.seen where what = 'files event'`);
  expect(rows[0].n).toBeGreaterThanOrEqual(14);
});

test('where no NATS is named, events stay within the process and do not pile up', async () => {
  await root.makeDirectory(uniqueName());
  await until(async () => {
    const { rowCount } = await database.query('select from jobs.outbox where published_at is null');
    return rowCount === 0;
  });
  const ready = expectStatus(await root.get('/api/system/ready'), 200);
  expect(ready.json['checks']).toContainEqual(expect.objectContaining({ name: 'event_bus', status: 'ready' }));
});
