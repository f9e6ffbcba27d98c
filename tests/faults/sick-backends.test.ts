import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { spawnSync } from 'node:child_process';
import { mkdir, open, readdir, rename, rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { defaultBackend, makeBackend } from '../support/backends.ts';
import { expectStatus, logIn, sha256, until } from '../support/client.ts';
import type { Client, Json } from '../support/client.ts';
import { FaultReport } from '../support/fault-report.ts';
import { mountTmpfs, noTmpfs } from '../support/mounts.ts';
import type { Mount } from '../support/mounts.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { rawLocal, rawS3, rawWebdav } from '../support/raw-stores.ts';
import type { RawStore } from '../support/raw-stores.ts';
import { describeWith, s3Server, webdavServer } from '../support/real-servers.ts';
import { RefusingProxy } from '../support/refusing-proxy.ts';
import type { Refusal } from '../support/refusing-proxy.ts';
import { makeS3Backend, makeWebdavBackend } from '../support/remote-backends.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { System } from '../support/system.ts';

const filesEach = 3;
const report = new FaultReport('Backends that lose their disk, their place, their rights or their room');
afterAll(() => report.print());

const readOnly: Refusal = { status: 403, code: 'AccessDenied' };
const full: Refusal = { status: 507, code: 'XMinioStorageFull' };

/** A backend of a test's own, in the first place of its class; the second copy is at home. */
interface Patient {
  backend: Json;
  fileClass: string;
  raw: RawStore;
  files: { id: string; key: string; hash: string }[];
}

interface Illness {
  /** What its health says. */
  detail: RegExp;
  /** Makes it ill; gives how that is undone. */
  begin(): Promise<() => Promise<void>>;
  /** An upload of the first moments may be refused: it went to a place that was not the backend's any more. */
  mayRefuse?: true;
  /** Called when its health has told of it. */
  noticed?(): Promise<void>;
  /** What must hold while it lasts. */
  meanwhile?(): Promise<void>;
}

describe('a backend that falls ill is named, costs nothing, and comes right by itself', () => {
  const random = new Random(chooseSeed());
  const mounts: Mount[] = [];
  let system: System;
  let admin: Client;
  let database: pg.Pool;
  let home: Json;

  beforeAll(async () => {
    process.stderr.write(`sick backends: STOWAGE_TEST_SEED=${random.seed}\n`);
    if (noTmpfs === null) mounts.push(await mountTmpfs('size=16m'), await mountTmpfs('size=16m'));
    system = await startSystem('standalone', {
      STOWAGE_CHECK_INTERVAL: '1s',
      STOWAGE_LOCAL_RESERVE: '64KiB',
      STOWAGE_LOCAL_ROOTS: mounts.map(({ path }) => path).join(':'),
      STOWAGE_LOG_LEVEL: 'fatal',
    });
    admin = await logIn(system.url);
    database = new pg.Pool({ connectionString: system.databaseUrl, max: 2 });
    home = await defaultBackend(admin);
  }, 120_000);

  afterAll(async () => {
    await database?.end();
    await system?.close();
    for (const mount of mounts) await mount.close();
  });

  async function patient(backend: Json, raw: RawStore): Promise<Patient> {
    expect(backend['health'].status).toBe('healthy');
    const fileClass = uniqueName('class');
    const body = { backends: [backend['id'], home['id']], replicas: 2 };
    expectStatus(await admin.call('PUT', `/api/policies/placement/${fileClass}`, { body }), 200);
    const made: Patient = { backend, fileClass, raw, files: [] };
    for (let count = 0; count < filesEach; count += 1) await put(made);
    await allTwice(made);
    return made;
  }

  async function put(to: Patient): Promise<void> {
    const bytes = random.bytes(random.integer(70_000, 200_000));
    const { id } = await admin.putFile(uniqueName(), bytes, { fileClass: to.fileClass });
    const { rows } = await database.query<{ key: string }>(
      'select r.key from catalog.nodes n join catalog.replicas r on r.blob_id = n.blob_id where n.id = $1',
      [id],
    );
    to.files.push({ id: String(id), key: rows[0]?.key ?? '', hash: sha256(bytes) });
  }

  /** How many replicas of its files are in each state. */
  async function states({ files }: Patient): Promise<Record<string, number>> {
    const { rows } = await database.query<{ state: string; count: number }>(
      `select r.state, count(*)::int as count from catalog.nodes n join catalog.replicas r on r.blob_id = n.blob_id
       where n.id = any($1::uuid[]) group by 1`,
      [files.map(({ id }) => id)],
    );
    return Object.fromEntries(rows.map(({ state, count }) => [state, count]));
  }

  async function allTwice(of: Patient): Promise<void> {
    await until(async () => {
      await healthOf(of);
      return (await states(of))['available'] === 2 * of.files.length;
    }, 60_000);
  }

  async function healthOf({ backend }: Patient): Promise<Json> {
    // Workers look for what is due every few seconds; asked, they look at once.
    await admin.post('/api/jobs/run-pending', { kinds: ['health_check', 'full_reconcile', 'place_blob'] });
    return expectStatus(await admin.get(`/api/backends/${backend['id']}`), 200).json['health'];
  }

  async function reconcile(): Promise<Json> {
    const { job } = expectStatus(await admin.post('/api/jobs/enqueue-full-reconcile', {}), 202).json;
    return until(async () => {
      const { json } = await admin.get(`/api/jobs/${job.id}`);
      return ['succeeded', 'failed'].includes(json['state']) ? json : null;
    }, 60_000);
  }

  async function expectReadable({ files }: Patient): Promise<void> {
    for (const { id, hash } of files) {
      expect(sha256(expectStatus(await admin.get(`/api/files/${id}/download`), 200).bytes)).toBe(hash);
    }
  }

  async function endure(sick: Patient, illness: Illness): Promise<void> {
    const local = rawLocal(home);
    const before = [...sick.files];
    const undo = await illness.begin();
    try {
      // At once, before anybody has noticed.
      await put(sick).catch(async (error: unknown) => {
        if (!illness.mayRefuse || !String(error).includes('got 503')) throw error;
        await put(sick);
      });
      await expectReadable(sick);
      await until(async () => (await healthOf(sick))['status'] === 'unhealthy', 30_000);
      expect((await healthOf(sick))['detail']).toMatch(illness.detail);
      await illness.noticed?.();
      await put(sick);
      await expectReadable(sick);
      const { state, result } = await reconcile();
      expect({ state, lost: result.lost, removed: result.removed }).toEqual({
        state: 'succeeded',
        lost: 0,
        removed: 0,
      });
      expect(result.sample.map((entry: Json) => entry['backend_id'])).toContain(sick.backend['id']);
      const { available = 0, missing = 0, corrupt = 0, removing = 0 } = await states(sick);
      expect({ missing, corrupt, removing }).toEqual({ missing: 0, corrupt: 0, removing: 0 });
      expect(available).toBeGreaterThanOrEqual(2 * before.length + 2);
      for (const { key, hash } of before) expect(sha256(await local.read(key))).toBe(hash);
      await illness.meanwhile?.();
      report.add(expect.getState().currentTestName?.split(': ').at(-1) ?? '', {
        health: JSON.stringify((await healthOf(sick))['detail']),
      });
    } finally {
      await undo();
    }
    await until(async () => (await healthOf(sick))['status'] === 'healthy', 60_000);
    await allTwice(sick);
    for (const { key, hash } of sick.files) {
      for (const raw of [sick.raw, local]) expect(sha256(await raw.read(key))).toBe(hash);
    }
  }

  test('local: its disk is not mounted, and nothing is written to the bare folder (R19)', async () => {
    const backend = await makeBackend(admin);
    const root = String(backend['config'].root_path);
    await endure(await patient(backend, rawLocal(backend)), {
      detail: /^marker: .*no identity marker/,
      begin: async () => {
        await rename(root, `${root}-away`);
        await mkdir(root);
        return async () => {
          await rmdir(root);
          await rename(`${root}-away`, root);
        };
      },
      meanwhile: async () => expect(await readdir(root, { recursive: true })).toEqual([]),
    });
  }, 120_000);

  test('local: its folder was swapped with that of another', async () => {
    const [one, other] = [await makeBackend(admin), await makeBackend(admin)];
    const [patients, roots] = [
      [await patient(one, rawLocal(one)), await patient(other, rawLocal(other))],
      [one, other].map(({ config }) => String(config.root_path)),
    ];
    const [root = '', otherRoot = ''] = roots;
    const swap = async (): Promise<void> => {
      await rename(root, `${root}-swap`);
      await rename(otherRoot, root);
      await rename(`${root}-swap`, otherRoot);
    };
    const [first, second] = patients;
    if (!first || !second) throw new Error('no patients');
    const lying = async (): Promise<string[][]> =>
      Promise.all(roots.map((folder) => readdir(folder, { recursive: true })));
    let before: string[][] = [];
    await endure(first, {
      detail: /^marker: .*marker of another/,
      mayRefuse: true,
      begin: async () => {
        await swap();
        return swap;
      },
      noticed: async () => {
        await until(async () => String((await healthOf(second))['detail']).includes('marker of another'), 30_000);
        before = await lying();
      },
      meanwhile: async () => {
        await put(second);
        await expectReadable(second);
        expect(await lying()).toEqual(before);
      },
    });
    await allTwice(second);
  }, 120_000);

  const withDisks = noTmpfs === null ? test : test.skip;

  withDisks(
    'local: its disk is read-only',
    async () => {
      const path = mounts[0]?.path ?? '';
      await endure(await onDisk(path), {
        detail: /^write: /,
        begin: async () => {
          remount(path, 'ro');
          return async () => remount(path, 'rw');
        },
      });
    },
    120_000,
  );

  withDisks(
    'local: its disk is full',
    async () => {
      const path = mounts[1]?.path ?? '';
      await endure(await onDisk(path), {
        detail: /^write: The backend is full/,
        begin: async () => {
          const filler = join(path, 'filler');
          const handle = await open(filler, 'w');
          for (const size of [1_048_576, 4_096]) {
            const piece = Buffer.alloc(size, 1);
            while (
              await handle.write(piece).then(
                ({ bytesWritten }) => bytesWritten === size,
                () => false,
              )
            );
          }
          await handle.close();
          return () => rm(filler);
        },
      });
    },
    120_000,
  );

  async function onDisk(path: string): Promise<Patient> {
    const config = { root_path: join(path, 'backend') };
    const made = await admin.post('/api/backends', { name: uniqueName('disk'), type: 'local_directory', config });
    const backend = expectStatus(made, 201).json;
    return patient(backend, rawLocal(backend));
  }

  describeWith('S3', s3Server(), (server) => {
    let proxy: RefusingProxy;
    let sick: Patient;
    let bucket: ReturnType<typeof rawS3>;

    beforeAll(async () => {
      proxy = await RefusingProxy.start(server.url);
      const backend = await makeS3Backend(admin, { ...server, url: proxy.url });
      bucket = rawS3(backend, server);
      sick = await patient(backend, bucket);
    }, 60_000);
    afterAll(async () => {
      bucket?.close();
      await proxy?.close();
    });

    test(
      'S3: its keys may not write any more',
      () => endure(sick, refused(proxy, readOnly, /^write: .*not permit/)),
      120_000,
    );
    test('S3: it is full', () => endure(sick, refused(proxy, full, /^write: The backend is full/)), 120_000);

    test('S3: its bucket was emptied, or is another', async () => {
      let lying: string[] = [];
      await endure(sick, {
        detail: /^marker: .*no identity marker/,
        mayRefuse: true,
        noticed: async () => void (lying = await bucket.keys('')),
        begin: async () => {
          const saved = new Map<string, Buffer>();
          for (const key of await bucket.keys('')) saved.set(key, await bucket.read(key));
          for (const key of saved.keys()) await bucket.remove(key);
          return async () => {
            for (const [key, bytes] of saved) await bucket.write(key, bytes);
          };
        },
        meanwhile: async () => expect(await bucket.keys('')).toEqual(lying),
      });
    }, 120_000);
  });

  describeWith('WebDAV', webdavServer(), (server) => {
    let proxy: RefusingProxy;
    let sick: Patient;
    let folder: ReturnType<typeof rawWebdav>;

    beforeAll(async () => {
      proxy = await RefusingProxy.start(server.url);
      const backend = await makeWebdavBackend(admin, { ...server, url: `${proxy.url}/` });
      folder = rawWebdav(backend, server);
      sick = await patient(backend, folder);
    }, 60_000);
    afterAll(() => proxy?.close());

    test('WebDAV: it is read-only', () => endure(sick, refused(proxy, readOnly, /^write: /)), 120_000);
    test('WebDAV: it is full', () => endure(sick, refused(proxy, full, /^write: The backend is full/)), 120_000);

    test('WebDAV: its folder is another, empty one', async () => {
      await endure(sick, {
        detail: /^marker: .*no identity marker/,
        begin: async () => {
          await folder.moveAway();
          return () => folder.moveBack();
        },
        meanwhile: async () => expect(await folder.isEmpty()).toBe(true),
      });
    }, 120_000);
  });
});

function refused(proxy: RefusingProxy, refusal: Refusal, detail: RegExp): Illness {
  return {
    detail,
    begin: async () => {
      proxy.refusal = refusal;
      return async () => void (proxy.refusal = null);
    },
  };
}

function remount(path: string, option: 'ro' | 'rw'): void {
  const { status, stderr } = spawnSync('mount', ['-o', `remount,${option}`, path]);
  if (status !== 0) throw new Error(stderr.toString());
}
