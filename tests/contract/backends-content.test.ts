import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { execFileSync } from 'node:child_process';
import { cp, mkdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { freeFolder, makeBackend, newBackend } from '@stowage/tests/support/backends';
import { expectStatus, logIn, until } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { mountTmpfs, noTmpfs } from '@stowage/tests/support/mounts';
import { expectProblem } from '@stowage/tests/support/problems';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';

let system: System;
let root: Client;
let database: pg.Pool;

beforeAll(async () => {
  system = await startSystem(mode(), { STOWAGE_LOCAL_ROOTS: tmpdir() });
  root = await logIn(system.url);
  database = new pg.Pool({ connectionString: system.databaseUrl, max: 8 });
});
afterAll(async () => {
  await database.end();
  await system.close();
});

const path = (backend: Json, action = ''): string => `/api/backends/${backend['id']}${action}`;

/** With no full reconcile under way, which would soon see through what the tests write into the metadata. */
async function disabled(): Promise<Json> {
  const backend = await makeBackend(root);
  const { json } = expectStatus(await root.post(path(backend, '/disable')), 200);
  const open = `
    select from jobs.jobs where kind = 'full_reconcile' and (
      state = 'running' or state = 'pending' and run_after < now() + interval '5 minutes')`;
  await until(async () => {
    await root.post('/api/jobs/run-pending', { kinds: ['full_reconcile'], wait_seconds: 5 });
    return (await database.query(open)).rowCount === 0;
  }, 60_000);
  return json;
}

/** Puts a file, and gives it another replica on a backend, as a job would. */
async function replicaOn(backend: Json, content = 'content', state = 'available'): Promise<string> {
  const { id } = await root.putFile(uniqueName(), content);
  await database.query(
    `insert into catalog.replicas (blob_id, backend_id, key, state)
    select r.blob_id, $2, r.key, $3 from catalog.nodes n join catalog.replicas r on r.blob_id = n.blob_id where n.id = $1`,
    [id, backend['id'], state],
  );
  return id;
}

async function blockers(backend: Json): Promise<Json[]> {
  const answer = await root.delete(path(backend));
  expectProblem(answer, 409, 'backend_delete_refused');
  expect(expectStatus(await root.get(path(backend)), 200).json['deletable']).toEqual({
    ok: false,
    blockers: answer.json['blockers'],
  });
  return answer.json['blockers'];
}

describe('A backend that holds something', () => {
  test('is not deleted, and says how much it holds', async () => {
    const backend = await disabled();
    await replicaOn(backend, 'seven b');
    await replicaOn(backend, 'five.', 'corrupt');
    expect(await blockers(backend)).toEqual([{ code: 'has_replicas', count: 2, bytes: 12 }]);
    await database.query(
      `insert into upload.uploads (id, user_id, file_id, blob_id, backend_id, expires_at)
      select gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), $1, now() + interval '1 day'`,
      [backend['id']],
    );
    expect(await blockers(backend)).toEqual([{ code: 'has_replicas', count: 3, bytes: 12 }]);
  });

  test('or is named by a policy is not deleted', async () => {
    const backend = await disabled();
    await database.query(`insert into placement.policies (file_class, replicas) values ('image', 1)`);
    await database.query(
      `insert into placement.policy_backends (file_class, position, backend_id) values ('image', 0, $1)`,
      [backend['id']],
    );
    expect(await blockers(backend)).toEqual([{ code: 'referenced_by_policy', file_classes: ['image'] }]);
    await database.query(`delete from placement.policies where file_class = 'image'`);
    expectStatus(await root.delete(path(backend)), 204);
  });

  test('that is gone for good is forgotten, and can be deleted then', async () => {
    const backend = await disabled();
    const file = await replicaOn(backend);
    const forget = (more: Json = {}): Promise<Answer> =>
      root.post(path(backend, '/forget-replicas'), { confirm: true, ...more });
    await database.query(
      `update catalog.replicas set state = 'missing'
      where backend_id <> $1 and blob_id = (select blob_id from catalog.nodes where id = $2)`,
      [backend['id'], file],
    );
    const refused = await forget();
    expectProblem(refused, 409, 'state_conflict');
    expect(refused.json['last_copies']).toBe(1);
    expect(expectStatus(await forget({ accept_loss: true }), 200).json).toEqual({
      forgotten: 1,
      lost: 1,
      remaining: 0,
    });
    expectStatus(await root.delete(path(backend)), 204);
  });

  test('moves to a new place that bears its marker, and to no other', async () => {
    const backend = await disabled();
    await replicaOn(backend);
    const target = await freeFolder(root);
    const move = (): Promise<Answer> => root.call('PATCH', path(backend), { body: { config: { root_path: target } } });
    expectProblem(await move(), 409, 'backend_in_use');
    await mkdir(target);
    expectProblem(await move(), 409, 'backend_in_use');
    await cp(backend['config'].root_path, target, { recursive: true });
    expect(expectStatus(await move(), 200).json).toMatchObject({
      config: { root_path: target },
      health: { status: 'healthy' },
      usage: { replicas: 1 },
    });
  });
});

test('of deleting and referring at the same moment one is done, never both', async () => {
  for (let round = 0; round < 12; round += 1) {
    const backend = await disabled();
    const { id: file } = await root.putFile(uniqueName(), 'x');
    const refer = (): Promise<boolean> =>
      database
        .query(
          `insert into catalog.replicas (blob_id, backend_id, key, state)
          select blob_id, $2, 'key', 'copying' from catalog.nodes where id = $1`,
          [file, backend['id']],
        )
        .then(
          () => true,
          () => false,
        );
    const [deleted, referred] = await Promise.all([root.delete(path(backend)), refer()]);
    expect([deleted.status, referred]).toEqual(referred ? [409, true] : [204, false]);
  }
});

describe('Disabled', () => {
  test('a backend gets no new content, and is read on', async () => {
    const all = expectStatus(await root.get('/api/backends?limit=1000'), 200).json['items'];
    const standard = all.find((backend: Json) => backend['is_default']);
    const { id } = await root.putFile(uniqueName(), 'kept');
    expectStatus(await root.post(path(standard, '/disable')), 200);
    try {
      expect((await root.get(`/api/files/${id}/download`)).bytes.toString()).toBe('kept');
      expectProblem(
        await root.tus('POST', '/files', { 'upload-length': '4' }, Buffer.from('none')),
        503,
        'unavailable',
      );
    } finally {
      expectStatus(await root.post(path(standard, '/enable')), 200);
    }
    await root.putFile(uniqueName(), 'again');
  });
});

(noTmpfs === null ? describe : describe.skip)('A disk', () => {
  async function onDisk(options: string): Promise<{ backend: Json; mount: Awaited<ReturnType<typeof mountTmpfs>> }> {
    const mount = await mountTmpfs(options);
    const body = { ...(await newBackend(root)), config: { root_path: mount.path } };
    return { backend: expectStatus(await root.post('/api/backends', body), 201).json, mount };
  }

  async function check(backend: Json): Promise<Json> {
    return expectStatus(await root.post(path(backend, '/check')), 200).json['health'];
  }

  test('that is full is unhealthy and says so; with room it is healthy again', async () => {
    const { backend, mount } = await onDisk('size=256k');
    try {
      expect(backend['health'].status).toBe('healthy');
      const filler = join(mount.path, 'filler');
      await writeFile(filler, Buffer.alloc(1_048_576)).catch(() => undefined);
      expect(await check(backend)).toMatchObject({
        status: 'unhealthy',
        detail: expect.stringMatching(/^write: .*full/),
      });
      await writeFile(filler, '');
      expect(await check(backend)).toMatchObject({ status: 'healthy', detail: null });
    } finally {
      await mount.close();
    }
  });

  test('that is read-only is unhealthy, and one that is unmounted too', async () => {
    const { backend, mount } = await onDisk('size=1m');
    try {
      execFileSync('mount', ['-o', 'remount,ro', mount.path]);
      expect(await check(backend)).toMatchObject({ status: 'unhealthy', detail: expect.stringMatching(/^write: /) });
      execFileSync('mount', ['-o', 'remount,rw', mount.path]);
      expect(await check(backend)).toMatchObject({ status: 'healthy' });
      execFileSync('umount', [mount.path]);
      const health = await check(backend);
      expect(health).toMatchObject({ status: 'unhealthy', detail: expect.stringMatching(/^marker: .*mounted/) });
      expect(health['detail']).not.toContain(mount.path);
    } finally {
      await mount.close();
    }
  });
});
