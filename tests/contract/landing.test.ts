import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { makeBackend } from '@stowage/tests/support/backends';
import { expectStatus, logIn, sha256, until } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { FickleProxy } from '@stowage/tests/support/fickle-proxy';
import { expectProblem } from '@stowage/tests/support/problems';
import { describeWith, s3Server, webdavServer } from '@stowage/tests/support/real-servers';
import { makeS3Backend, makeWebdavBackend } from '@stowage/tests/support/remote-backends';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';
import { append, contentOf, finalize, makeUpload, offsetOf } from '@stowage/tests/support/uploads';
import type { MadeUpload } from '@stowage/tests/support/uploads';

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

/** A class of its own for the test. */
async function classOn(backends: Json[], replicas = 1, more: Json = {}): Promise<string> {
  const fileClass = uniqueName('class');
  const body = { backends: backends.map(({ id }) => id), replicas, ...more };
  expectStatus(await admin.call('PUT', `/api/policies/placement/${fileClass}`, { body }), 200);
  return fileClass;
}

function upload(fileClass: string, body: Buffer, length = body.length): Promise<MadeUpload> {
  const metadata = { filename: uniqueName(), file_class: fileClass };
  return makeUpload(admin, { length, metadata, body });
}

async function placementOf(file: Json): Promise<Json> {
  return expectStatus(await admin.get(`/api/files/${file['id']}`), 200).json['placement'];
}

/** The states of a file's replicas, by the names of `backends`, once its policy is kept. */
async function settled(file: Json, backends: Record<string, Json>): Promise<Json> {
  const placement = await until(async () => {
    await admin.post('/api/jobs/run-pending', { wait_seconds: 5 });
    const now = await placementOf(file);
    return now['state'] === 'satisfied' && !now['replicas'].some((one: Json) => one['state'] === 'removing')
      ? now
      : null;
  }, 60_000);
  const names = new Map(Object.entries(backends).map(([name, { id }]) => [id, name]));
  return Object.fromEntries(
    placement['replicas'].map((one: Json) => [names.get(one['backend_id']) ?? 'other', one['state']]),
  );
}

describe('An upload', () => {
  test('whose backend is disabled while it grows becomes a file, which is then brought to the next backend', async () => {
    const first = await makeBackend(admin);
    const made = await upload(await classOn([first, home]), Buffer.from('begun'), 8);
    expectStatus(await admin.post(`/api/backends/${first['id']}/disable`), 200);
    expectStatus(await append(admin, made.path, 5, Buffer.from('end')), 204);
    const file = expectStatus(await finalize(admin, made), 201).json;
    expect(await settled(file, { first, home })).toEqual({ first: 'available', home: 'available' });
    expect((await contentOf(admin, file['id'])).toString()).toBe('begunend');
  });

  test('does not go to a backend that is unhealthy, though its marker is right', async () => {
    const first = await makeBackend(admin);
    const fileClass = await classOn([first, home]);
    const blobs = join(first['config'].root_path, 'blobs');
    const staging = join(first['config'].root_path, 'staging');
    for (const folder of [blobs, staging]) await rename(folder, `${folder}.away`).then(() => writeFile(folder, ''));
    const { json } = expectStatus(await admin.post(`/api/backends/${first['id']}/check`), 200);
    expect(json['health']).toMatchObject({ status: 'unhealthy', detail: expect.not.stringMatching(/^marker/) });
    const file = expectStatus(await finalize(admin, await upload(fileClass, Buffer.from('elsewhere'))), 201).json;
    expect(await placementOf(file)).toMatchObject({ replicas: [{ backend_id: home['id'], state: 'available' }] });
  });
});

describeWith('WebDAV', webdavServer(), (server) => {
  test('what only WebDAV is to hold waits on the default backend, converging, and leaves it', async () => {
    const remote = await makeWebdavBackend(admin, server);
    expectStatus(await admin.post(`/api/backends/${remote['id']}/disable`), 200);
    const fileClass = await classOn([remote]);
    const file = expectStatus(await finalize(admin, await upload(fileClass, Buffer.from('passes'))), 201).json;
    expect(await placementOf(file)).toMatchObject({ state: 'degraded', replicas: [{ backend_id: home['id'] }] });
    expectStatus(await admin.post(`/api/backends/${remote['id']}/enable`), 200);
    expect(await settled(file, { remote, home })).toEqual({ remote: 'available' });
    expect((await contentOf(admin, file['id'])).toString()).toBe('passes');
  });
});

describeWith('S3', s3Server(), (server) => {
  /** A server that can go away, and come back. */
  async function behindProxy(work: (remote: Json, proxy: FickleProxy) => Promise<void>): Promise<void> {
    const proxy = await FickleProxy.start(server.url);
    try {
      await work(await makeS3Backend(admin, { ...server, url: new URL(proxy.url).origin }), proxy);
    } finally {
      await proxy.close();
    }
  }

  test('an upload whose S3 goes away in the middle says so, loses nothing that it acknowledged, and goes on', async () => {
    await behindProxy(async (remote, proxy) => {
      const content = Buffer.alloc(14_000_000, 'grows');
      const made = await upload(await classOn([remote]), content.subarray(0, 100), content.length);
      expectStatus(await append(admin, made.path, 100, content.subarray(100, 6_000_000)), 204);
      proxy.turn('refuses');
      const refused = await append(admin, made.path, 6_000_000, content.subarray(6_000_000));
      expectProblem(refused, 503, 'unavailable');
      proxy.turn('answers');
      const offset = await until(async () => {
        const head = await admin.tus('HEAD', made.path);
        return head.status === 200 ? await offsetOf(admin, made.path) : null;
      }, 60_000);
      expect(offset).toBeGreaterThanOrEqual(6_000_000);
      await until(async () => {
        const from = await offsetOf(admin, made.path);
        return (await append(admin, made.path, from, content.subarray(from))).status === 204;
      }, 60_000);
      const file = expectStatus(await finalize(admin, made), 201).json;
      expect(file['sha256']).toBe(sha256(content));
      expect(sha256(await contentOf(admin, file['id']))).toBe(sha256(content));
    });
  }, 180_000);

  test('sync_replicas with a target that is away: 503 in time and the upload stays; asked again when it is back, 201', async () => {
    await behindProxy(async (remote, proxy) => {
      const fileClass = await classOn([home, remote], 2, { sync_replicas: 2 });
      const made = await upload(fileClass, Buffer.from('both or none'));
      proxy.turn('refuses');
      const first = await finalize(admin, made);
      expect([202, 503]).toContain(first.status);
      expect(first.headers.get('retry-after')).toMatch(/^\d+$/);
      expect(expectStatus(await admin.get(`/api/uploads/${made.id}`), 200).json).toMatchObject({ state: 'finalizing' });
      proxy.turn('answers');
      const file = await until(async () => {
        const answer = await finalize(admin, made);
        return answer.status === 201 ? answer.json : null;
      }, 90_000);
      expect((await placementOf(file))['replicas'].map((one: Json) => one['state'])).toEqual([
        'available',
        'available',
      ]);
    });
  }, 180_000);
});
