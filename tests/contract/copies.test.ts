import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { freeFolder, makeBackend, newBackend } from '@stowage/tests/support/backends';
import { blobFileOf } from '@stowage/tests/support/blobs-on-disk';
import { expectStatus, logIn, sha256, until, uploadIdOf } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { expectProblem } from '@stowage/tests/support/problems';
import { describeWith, s3Server, webdavServer } from '@stowage/tests/support/real-servers';
import { makeS3Backend, makeWebdavBackend } from '@stowage/tests/support/remote-backends';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';
import { append, createUpload, finalize } from '@stowage/tests/support/uploads';

let system: System;
let admin: Client;
let home: Json;

beforeAll(async () => {
  system = await startSystem(mode());
  admin = await logIn(system.url);
  const { items } = expectStatus(await admin.get('/api/backends'), 200).json;
  home = items.find((backend: Json) => backend['is_default']);
});
afterAll(() => system.close());

/** Saves the policy of a class of its own for the test, and gives it. */
async function policy(
  backends: Json[],
  replicas: number,
  more: Json = {},
  fileClass = uniqueName('class'),
): Promise<Json> {
  const wanted = { backends: backends.map(({ id }) => id), replicas, ...more };
  return expectStatus(await admin.call('PUT', `/api/policies/placement/${fileClass}`, { body: wanted }), 200).json[
    'policy'
  ];
}

async function put(fileClass: unknown, content: string | Buffer): Promise<Json> {
  const { id } = await admin.putFile(uniqueName(), content, { fileClass: String(fileClass) });
  return expectStatus(await admin.get(`/api/files/${id}`), 200).json;
}

/** Where a file's good copies lie, once they lie as `wanted` names it. */
async function liesOn(file: Json, wanted: Json[]): Promise<void> {
  const ids = wanted.map(({ id }) => String(id)).sort();
  await until(async () => {
    await admin.post('/api/jobs/run-pending', { wait_seconds: 5 });
    const { placement } = expectStatus(await admin.get(`/api/files/${file['id']}`), 200).json;
    const good = placement.replicas.filter((replica: Json) => replica['state'] === 'available');
    return JSON.stringify(good.map((replica: Json) => replica['backend_id']).sort()) === JSON.stringify(ids);
  }, 60_000);
}

async function download(file: Json): Promise<string> {
  return sha256(expectStatus(await admin.get(`/api/files/${file['id']}/download`), 200).bytes);
}

async function reconcile(): Promise<void> {
  const { job } = expectStatus(await admin.post('/api/jobs/enqueue-full-reconcile', {}), 202).json;
  await until(async () => {
    await admin.post('/api/jobs/run-pending', { wait_seconds: 5 });
    const { state } = expectStatus(await admin.get(`/api/jobs/${job.id}`), 200).json;
    expect(state).not.toBe('failed');
    return state === 'succeeded';
  }, 60_000);
}

/** Where a file's copy lies on the default backend; on another local one it has the same path below its root. */
function homeFile(file: Json): Promise<string> {
  return blobFileOf(system.dataDir, String(file['sha256']));
}

describe('Copies on local backends', () => {
  test('a file gets as many as its policy wants, and moves when the policy changes', async () => {
    const [second, third] = [await makeBackend(admin), await makeBackend(admin)];
    const { file_class: fileClass } = await policy([home, second], 2);
    const file = await put(fileClass, 'kept twice');
    await liesOn(file, [home, second]);
    await policy([second, third], 2, {}, fileClass);
    await liesOn(file, [second, third]);
    expect(await download(file)).toBe(sha256('kept twice'));
    await policy([home], 1, {}, fileClass);
    await liesOn(file, [home]);
  });

  test('sync_replicas holds the answer until so many copies are durable', async () => {
    const second = await makeBackend(admin);
    const { file_class: fileClass } = await policy([home, second], 2, { sync_replicas: 2 });
    const file = await put(fileClass, 'two at once');
    expect(file['placement'].replicas.map((replica: Json) => replica['state'])).toEqual(['available', 'available']);
  });

  test('sync_replicas that can not be reached is 503, and the upload goes on when it can', async () => {
    const second = await makeBackend(admin);
    const { file_class: fileClass } = await policy([home, second], 2, { sync_replicas: 2 });
    expectStatus(await admin.post(`/api/backends/${second['id']}/disable`), 200);
    const metadata = { filename: uniqueName(), file_class: String(fileClass) };
    const made = await createUpload(admin, { length: 5, metadata, body: Buffer.from('waits') });
    const upload = { id: uploadIdOf(expectStatus(made, 201)) };
    expectProblem(await finalize(admin, upload), 503, 'unavailable');
    expectStatus(await admin.post(`/api/backends/${second['id']}/enable`), 200);
    const file = expectStatus(await finalize(admin, upload), 201).json;
    await liesOn(file, [home, second]);
  });

  test('a copy that breaks is not served, and is made anew from a good one', async () => {
    const second = await makeBackend(admin);
    const { file_class: fileClass } = await policy([home, second], 2);
    const file = await put(fileClass, 'whole and right');
    await liesOn(file, [home, second]);
    const path = await homeFile(file);
    await writeFile(path, 'whole and wrong');
    expect(await download(file)).toBe(sha256('whole and right'));
    await reconcile();
    await liesOn(file, [home, second]);
    expect((await readFile(path)).toString()).toBe('whole and right');
    await rm(join(second['config'].root_path, relative(home['config'].root_path, path)));
    expect(await download(file)).toBe(sha256('whole and right'));
  });

  test('a disabled backend that a policy still names keeps what it has; one that none names is emptied and can be deleted', async () => {
    const [second, third] = [await makeBackend(admin), await makeBackend(admin)];
    const { file_class: fileClass } = await policy([second, home], 1);
    const file = await put(fileClass, 'goes away');
    await liesOn(file, [second]);
    expectStatus(await admin.post(`/api/backends/${second['id']}/disable`), 200);
    expectProblem(await admin.delete(`/api/backends/${second['id']}`), 409, 'backend_delete_refused');
    await policy([third], 1, {}, fileClass);
    await liesOn(file, [third]);
    await until(async () => (await admin.delete(`/api/backends/${second['id']}`)).status === 204, 30_000);
  });
});

describe('A backend that was away', () => {
  test('gets what it missed when it is back, without help', async () => {
    const second = await makeBackend(admin);
    const { file_class: fileClass } = await policy([home, second], 2);
    const root = second['config'].root_path;
    await rename(root, `${root}-away`);
    const check = (): Promise<Json> =>
      admin.post(`/api/backends/${second['id']}/check`, {}).then((answer) => expectStatus(answer, 200).json['health']);
    expect((await check())['status']).toBe('unhealthy');
    const file = await put(fileClass, 'made meanwhile');
    await liesOn(file, [home]);
    await rename(`${root}-away`, root);
    expect((await check())['status']).toBe('healthy');
    await liesOn(file, [home, second]);
    const { items } = expectStatus(await admin.get('/api/jobs?kind=full_reconcile&limit=1000'), 200).json;
    expect(items.map((job: Json) => job['params'])).toContainEqual({
      reason: 'backend_healthy',
      backend_id: second['id'],
    });
  });
});

describe('Jobs on wish', () => {
  test('each enabled backend is checked, once at a time', async () => {
    const answer = await admin.post('/api/jobs/enqueue-health-checks', {});
    const { jobs } = expectStatus(answer, 202).json;
    const { items } = expectStatus(await admin.get('/api/backends?limit=1000'), 200).json;
    const enabled = items
      .filter((backend: Json) => backend['state'] === 'enabled')
      .map((backend: Json) => backend['id']);
    expect(jobs.map((job: Json) => job['params'].backend_id).sort()).toEqual(enabled.sort());
    await until(async () => {
      const { json } = await admin.get(`/api/jobs/${jobs[0].id}`);
      return json['state'] === 'succeeded' && json['result'].status === 'healthy';
    });
  });

  test('a job that ended is not cancelled', async () => {
    const { job } = expectStatus(await admin.post('/api/jobs/enqueue-full-reconcile', {}), 202).json;
    await until(async () => (await admin.get(`/api/jobs/${job.id}`)).json['state'] === 'succeeded', 60_000);
    expectProblem(await admin.post(`/api/jobs/${job.id}/cancel`, {}), 409, 'state_conflict');
  });

  test('a new backend is not the place of another', async () => {
    const taken = await makeBackend(admin);
    const again = { ...(await newBackend(admin)), config: taken['config'] };
    expect((await admin.post('/api/backends', again)).status).toBe(400);
    expect(await freeFolder(admin)).not.toBe(taken['config'].root_path);
  });
});

describeWith('S3', s3Server(), (server) => {
  test('a file is kept on S3 as well, is read from there when the local copy is gone, and comes back', async () => {
    const remote = await makeS3Backend(admin, server);
    expect(remote['health'].status).toBe('healthy');
    const { file_class: fileClass } = await policy([home, remote], 2);
    const content = Buffer.alloc(9_000_001, 'stowage');
    const file = await put(fileClass, content);
    await liesOn(file, [home, remote]);
    const path = await homeFile(file);
    await rm(path);
    expect(await download(file)).toBe(sha256(content));
    await reconcile();
    await liesOn(file, [home, remote]);
    expect(sha256(await readFile(path))).toBe(sha256(content));
    await policy([remote], 1, {}, fileClass);
    await liesOn(file, [remote]);
    expect(await download(file)).toBe(sha256(content));
  });
});

describeWith('S3', s3Server(), (server) => {
  test('an upload lands on S3 where that comes first, grows there, and is a file at once', async () => {
    const remote = await makeS3Backend(admin, server);
    const { file_class: fileClass } = await policy([remote, home], 1);
    const content = Buffer.alloc(12_345_678, 'grows');
    const metadata = { filename: uniqueName(), file_class: String(fileClass) };
    const made = expectStatus(await createUpload(admin, { length: content.length, metadata }), 201);
    const upload = { id: uploadIdOf(made) };
    for (const [start, end] of [
      [0, 1],
      [1, 6_000_000],
      [6_000_000, content.length],
    ] as const) {
      const answer = await append(admin, `/files/${upload.id}`, start, content.subarray(start, end));
      expect(expectStatus(answer, 204).headers.get('upload-offset')).toBe(String(end));
    }
    const file = expectStatus(await finalize(admin, upload), 201).json;
    await liesOn(file, [remote]);
    expect(file['sha256']).toBe(sha256(content));
    expect(await download(file)).toBe(sha256(content));
  });
});

describeWith('WebDAV', webdavServer(), (server) => {
  test('a file is kept on WebDAV as well, and is read from there when the local copy is gone', async () => {
    const remote = await makeWebdavBackend(admin, server);
    expect(remote['health'].status).toBe('healthy');
    const { file_class: fileClass } = await policy([home, remote], 2);
    const content = Buffer.alloc(3_000_001, 'stowage');
    const file = await put(fileClass, content);
    await liesOn(file, [home, remote]);
    await rm(await homeFile(file));
    expect(await download(file)).toBe(sha256(content));
  });
});
