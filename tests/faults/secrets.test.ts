import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { expectStatus, logIn, sha256, until } from '../support/client.ts';
import type { Answer, Client, Json } from '../support/client.ts';
import { FaultReport } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { describeWith, s3Server, webdavServer } from '../support/real-servers.ts';
import type { S3Server, WebdavServer } from '../support/real-servers.ts';
import { makeS3Backend, makeWebdavBackend } from '../support/remote-backends.ts';
import { newSecretKey, resealSecrets } from '../support/reseal.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { System } from '../support/system.ts';
import { contentOf } from '../support/uploads.ts';

const random = new Random(chooseSeed());
const report = new FaultReport('R35 and T37 secrets are kept, renewed, and bound to where they belong');
afterAll(() => report.print());

const [s3, webdav] = [s3Server(), webdavServer()];
const [oldKey, newKey] = [newSecretKey('old'), newSecretKey('new')];
const clients = 4;

describeWith('S3 and WebDAV', s3 && webdav ? { s3, webdav } : null, (servers) => {
  let system: System;
  let admin: Client;
  let database: pg.Pool;
  const backends: Json[] = [];

  beforeAll(async () => {
    process.stderr.write(`secrets: STOWAGE_TEST_SEED=${random.seed}\n`);
    system = await startSystem('services', { STOWAGE_LOG_LEVEL: 'fatal', STOWAGE_SECRET_KEYS: oldKey });
    admin = await logIn(system.url);
    database = new pg.Pool({ connectionString: system.databaseUrl, max: 2 });
    database.on('error', () => undefined);
    backends.push(...(await makeBackends(servers)), ...(await makeBackends(servers)));
    expect(await Promise.all(backends.map(health))).toEqual(backends.map(() => ({ status: 'healthy', detail: null })));
  }, 120_000);
  afterAll(async () => {
    await database?.end();
    await system?.close();
  });

  async function makeBackends({ s3, webdav }: { s3: S3Server; webdav: WebdavServer }): Promise<Json[]> {
    return [await makeS3Backend(admin, s3), await makeWebdavBackend(admin, webdav)];
  }

  const secretsOf = (backend: Json): string[] =>
    backend['type'] === 's3' ? ['access_key_id', 'secret_access_key', 'session_token'] : ['password'];
  const patch = (backend: Json, config: Json): Promise<Answer> =>
    admin.call('PATCH', `/api/backends/${backend['id']}`, { body: { config } });

  /** What a check by hand says. */
  async function health(backend: Json): Promise<{ status: string; detail: string | null }> {
    const { json } = expectStatus(await admin.post(`/api/backends/${backend['id']}/check`), 200);
    return { status: json['health'].status, detail: json['health'].detail };
  }

  async function sealed(backend: Json): Promise<unknown[]> {
    const { rows } = await database.query(
      'select field, key_id, nonce, sealed from registry.backend_secrets where backend_id = $1 order by field',
      [backend['id']],
    );
    return rows;
  }

  test('of PATCHes without a new secret none changes what works, and a mask is refused (T39)', async () => {
    const before = await Promise.all(backends.map(sealed));
    const counts: Record<string, number> = {};
    let sent = 0;
    const send = async (backend: Json): Promise<void> => {
      const mask = random.chance(0.05);
      const said = mask ? ['***', '*', '••••••••', '·····'] : ['', null];
      // Omitted, or one of these, each secret for itself.
      const named = secretsOf(backend).filter(() => random.chance(0.7));
      const values = named.map((field, at) => [field, said[random.integer(mask && at > 0 ? 1 : 0, said.length - 1)]]);
      const { status, json } = await patch(backend, Object.fromEntries(values));
      const wanted = mask && named.length > 0 ? 400 : 200;
      const what = mask && named.length > 0 ? 'mask' : 'kept';
      counts[what] = (counts[what] ?? 0) + 1;
      expect({ status, code: json['code'], health: json['health']?.status }).toEqual(
        wanted === 400 ? { status, code: 'validation_failed' } : { status: 200, health: 'healthy' },
      );
    };
    const running = backends.map(async (backend) => {
      while (sent < faultSizes.secretPatches) {
        sent += 1;
        await send(backend);
      }
    });
    await Promise.all(running);
    expect(await Promise.all(backends.map(sealed))).toEqual(before);
    expect(await Promise.all(backends.map(health))).toEqual(backends.map(() => ({ status: 'healthy', detail: null })));
    report.add('PATCH', counts);
  }, 600_000);

  describe('the key', () => {
    const fileClass = 'rotated';
    const files: { id: string; hash: string }[] = [];
    let calls = 0;

    /** Uploads that are copied to S3 and WebDAV before they are acknowledged, and reads, while `work` is done. */
    async function underLoad<R>(work: () => Promise<R>): Promise<R> {
      let stopped = false;
      const running = Array.from({ length: clients }, async () => {
        while (!stopped) {
          const bytes = random.bytes(random.integer(1, 50_000));
          const { id } = await admin.putFile(uniqueName(), bytes, { fileClass });
          files.push({ id, hash: sha256(bytes) });
          const known = files[random.integer(0, files.length - 1)];
          if (known) expect(sha256(await contentOf(admin, known.id))).toBe(known.hash);
          calls += 3;
        }
      });
      const ended = Promise.all(running);
      try {
        const done = files.length + clients;
        await until(async () => files.length > done);
        const result = await Promise.race([work(), ended.then(() => Promise.reject(new Error('the load ended')))]);
        const after = files.length + clients;
        await Promise.race([until(async () => files.length > after), ended]);
        return result;
      } finally {
        stopped = true;
        await ended;
      }
    }

    /** The services are restarted with other keys; everybody logs in as before. */
    async function restart(keys: string): Promise<void> {
      expect(await system.stop()).toBe(0);
      await system.restart({ STOWAGE_SECRET_KEYS: keys });
    }

    test('is changed under load without one failed call to a backend, and the old one opens nothing then', async () => {
      const [onS3, onDav] = backends;
      const body = { backends: [onS3?.['id'], onDav?.['id']], replicas: 2, sync_replicas: 2 };
      expectStatus(await admin.call('PUT', `/api/policies/placement/${fileClass}`, { body }), 200);
      await underLoad(async () => undefined);
      await restart(`${newKey},${oldKey}`);
      const { code, output } = await underLoad(() => resealSecrets(system, `${newKey},${oldKey}`));
      expect({ code, output }).toEqual({ code: 0, output: expect.stringMatching(/^6 secrets/) });
      await restart(newKey);
      await underLoad(async () => undefined);
      expect(await Promise.all(backends.map(health))).toEqual(
        backends.map(() => ({ status: 'healthy', detail: null })),
      );
      for (const { id, hash } of files) expect(sha256(await contentOf(admin, id))).toBe(hash);

      expect(await system.stop()).toBe(0);
      await expect(system.restart({ STOWAGE_SECRET_KEYS: oldKey })).rejects.toThrow(
        /sealed under "new", and that key is not there/,
      );
      expect(await resealSecrets(system, oldKey)).toMatchObject({ code: 1 });
      await system.restart({ STOWAGE_SECRET_KEYS: newKey });
      report.add('rotation', { files: files.length, calls, failed: 0 });
    }, 300_000);

    test('opens nothing that was moved to another row or has a bit flipped, which health says (T37)', async () => {
      const [, , otherS3, otherDav] = backends;
      if (!otherS3 || !otherDav) throw new Error('there are four backends');
      // The keys of a backend are exchanged with each other; a bit of the other's password is flipped.
      await database.query(
        `update registry.backend_secrets t set nonce = f.nonce, sealed = f.sealed from registry.backend_secrets f
        where t.backend_id = $1 and f.backend_id = $1 and t.field <> f.field`,
        [otherS3['id']],
      );
      await database.query(
        'update registry.backend_secrets set sealed = set_bit(sealed, 77, 1 - get_bit(sealed, 77)) where backend_id = $1',
        [otherDav['id']],
      );
      await restart(newKey);
      const unsealed = { status: 'unhealthy', detail: expect.stringMatching(/^open: A secret .* can not be opened/) };
      const well = { status: 'healthy', detail: null };
      expect(await Promise.all(backends.map(health))).toEqual([well, well, unsealed, unsealed]);
      await underLoad(async () => undefined);
      expect(await resealSecrets(system, newSecretKey('newer') + `,${newKey}`)).toEqual({
        code: 1,
        output: expect.stringMatching(/does not open/),
      });
      // What is set anew works again.
      expectStatus(await patch(otherDav, { password: servers.webdav.password }), 200);
      expectStatus(
        await patch(otherS3, {
          access_key_id: servers.s3.accessKey,
          secret_access_key: servers.s3.secretKey,
        }),
        200,
      );
      expect(await Promise.all(backends.map(health))).toEqual([well, well, well, well]);
    }, 300_000);
  });
});
