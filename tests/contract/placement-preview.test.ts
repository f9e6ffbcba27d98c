import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { unlink } from 'node:fs/promises';
import { makeBackend } from '@stowage/tests/support/backends';
import { blobFileOf } from '@stowage/tests/support/blobs-on-disk';
import { expectStatus, logIn, until } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { describeWith, s3Server, webdavServer } from '@stowage/tests/support/real-servers';
import { makeS3Backend, makeWebdavBackend } from '@stowage/tests/support/remote-backends';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';

const base = '/api/policies/placement';
let system: System;
let admin: Client;

beforeAll(async () => {
  system = await startSystem(mode());
  admin = await logIn(system.url);
});
afterAll(() => system.close());

async function save(fileClass: string, backends: Json[], replicas: number): Promise<Json> {
  const body = { backends: backends.map(({ id }) => id), replicas };
  return expectStatus(await admin.call('PUT', `${base}/${fileClass}`, { body }), 200).json['job'];
}

async function store(fileClass: string, sizes: number[]): Promise<Json[]> {
  const files: Json[] = [];
  for (const size of sizes)
    files.push(await admin.putFile(uniqueName(), Buffer.alloc(size, uniqueName()), { fileClass }));
  return files;
}

async function preview(query = ''): Promise<Json> {
  return expectStatus(await admin.get(`${base}/preview${query}`), 200).json;
}

/** Waits until no job is due that changes where content lies. */
async function quiet(): Promise<void> {
  const kinds = ['full_reconcile', 'place_blob', 'verify_blob', 'remove_blob'];
  await until(async () => {
    await admin.post('/api/jobs/run-pending', { kinds, wait_seconds: 10 });
    for (const state of ['pending', 'running']) {
      const { items } = expectStatus(await admin.get(`/api/jobs?state=${state}&limit=1000`), 200).json;
      const now = Date.now();
      if (items.some((job: Json) => kinds.includes(job['kind']) && Date.parse(job['run_after']) <= now)) return false;
    }
    return true;
  }, 90_000);
}

async function usage(): Promise<Map<string, { replicas: number; bytes: number }>> {
  const { items } = expectStatus(await admin.get('/api/backends?limit=1000'), 200).json;
  return new Map(items.map((backend: Json) => [backend['id'], backend['usage']]));
}

function sum(rows: Json[], ...names: string[]): Record<string, number> {
  return Object.fromEntries(names.map((name) => [name, rows.reduce((total, row) => total + Number(row[name]), 0)]));
}

describeWith('S3', s3Server(), (s3) => {
  describeWith('WebDAV', webdavServer(), (webdav) => {
    test('with no change in between a full reconcile does exactly what the preview said', async () => {
      const { items } = expectStatus(await admin.get('/api/backends'), 200).json;
      const home: Json = items[0];
      const [onS3, onDav] = [await makeS3Backend(admin, s3), await makeWebdavBackend(admin, webdav)];
      const [leaving, off] = [await makeBackend(admin), await makeBackend(admin)];

      // Governed by the default policy, and about to leave a backend that is then disabled.
      await save('default', [leaving], 1);
      const moving = [...(await store('moves-one', [0, 1, 70_000])), ...(await store('moves-two', [1_500_000, 3]))];
      // Wants what there is not: too few backends are enabled.
      await save('wishful', [home, off], 2);
      expectStatus(await admin.post(`/api/backends/${off['id']}/disable`), 200);
      await store('wishful', [11, 12]);
      // Lies as it should.
      await save('settled', [home], 1);
      await store('settled', [5, 6, 7]);
      // Is lost, and that is known.
      await save('gone', [home], 1);
      const [lost] = await store('gone', [4_321, 8]);
      await unlink(await blobFileOf(system.dataDir, String(lost?.['sha256'])));
      expectStatus(await admin.get(`/api/files/${lost?.['id']}/download`), 503);
      expectStatus(await admin.post(`/api/backends/${leaving['id']}/disable`), 200);
      await quiet();

      const trial = `?file_class=default&backends=${onS3['id']},${onDav['id']},${home['id']}&replicas=2`;
      const tried = await preview(trial);
      const others = (await preview()).classes.filter(
        ({ file_class: name }: Json) => !tried['classes'].some((one: Json) => one['file_class'] === name),
      );
      expect(tried['classes']).toEqual([
        expect.objectContaining({ file_class: 'moves-one', files: 3, bytes: 70_001, to_copy: 6, to_remove: 3 }),
        expect.objectContaining({ file_class: 'moves-two', files: 2, bytes: 1_500_003, to_copy: 4, to_remove: 2 }),
      ]);
      const bytes = 1_570_004;
      const byId = (one: Json, other: Json): number =>
        String(one['backend_id']) < String(other['backend_id']) ? -1 : 1;
      const adds = { add_replicas: 5, add_bytes: bytes, remove_replicas: 0, remove_bytes: 0 };
      expect(tried['backends']).toEqual(
        [
          { backend_id: onS3['id'], ...adds },
          { backend_id: onDav['id'], ...adds },
          { backend_id: leaving['id'], add_replicas: 0, add_bytes: 0, remove_replicas: 5, remove_bytes: bytes },
        ].sort(byId),
      );
      expect(sum(others, 'files', 'satisfied', 'unsatisfiable', 'lost', 'to_copy', 'to_remove')).toEqual({
        ...{ files: 7, satisfied: 4, unsatisfiable: 2, lost: 1 },
        ...{ to_copy: 0, to_remove: 0 },
      });

      const before = await usage();
      const { id } = await save('default', [onS3, onDav, home], 2);
      const job = await until(async () => {
        const now = expectStatus(await admin.get(`/api/jobs/${id}`), 200).json;
        return now['state'] === 'succeeded' ? now : null;
      }, 60_000);
      const classes = [...tried['classes'], ...others];
      const said = sum(classes, 'files', 'bytes', 'to_copy', 'to_remove', 'unsatisfiable', 'lost');
      expect(job['result']).toMatchObject({
        blobs: said['files'],
        bytes: said['bytes'],
        copied: said['to_copy'],
        copied_bytes: sum(tried['backends'], 'add_bytes')['add_bytes'],
        removed: said['to_remove'],
        unsatisfiable: said['unsatisfiable'],
        lost: said['lost'],
        failed: 0,
      });
      const after = await usage();
      for (const backend of tried['backends']) {
        const [was, is] = [before, after].map((all) => all.get(backend['backend_id']) ?? { replicas: 0, bytes: 0 });
        expect([(is?.replicas ?? 0) - (was?.replicas ?? 0), (is?.bytes ?? 0) - (was?.bytes ?? 0)]).toEqual([
          backend['add_replicas'] - backend['remove_replicas'],
          backend['add_bytes'] - backend['remove_bytes'],
        ]);
      }
      for (const file of moving) {
        const { placement } = expectStatus(await admin.get(`/api/files/${file['id']}`), 200).json;
        expect(placement['state']).toBe('satisfied');
      }
      expect(sum((await preview()).classes, 'to_copy', 'to_remove')).toEqual({ to_copy: 0, to_remove: 0 });
      expectStatus(await admin.delete(`/api/backends/${leaving['id']}`), 204);
    }, 240_000);
  });
});
