import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { queryBuilder } from '@stowage/common/database/database';
import { inTransaction } from '@stowage/common/database/transaction';
import { newId } from '@stowage/common/ids';
import { StartupError } from '@stowage/common/runtime/run-process';
import { refuses } from '../stores/test-store.ts';
import type { Tables } from '../tables.ts';
import { startTestRegistry } from '../test-registry.ts';
import type { TestRegistry } from '../test-registry.ts';
import { keyFileIn, makeKeyFile } from './key-file.ts';
import { KeyRing, keyBytes } from './key-ring.ts';
import type { SecretKey } from './key-ring.ts';
import { openKeyRing } from './open-key-ring.ts';
import { resealSecrets } from './reseal-secrets.ts';
import { readSecrets, writeSecrets } from './secret-table.ts';

let registry: TestRegistry;
let dataDir: string;

beforeAll(async () => {
  registry = await startTestRegistry();
});
afterAll(() => registry.close());
beforeEach(async () => {
  await registry.reset();
  dataDir = await mkdtemp(path.join(tmpdir(), 'stowage-keys-'));
});
afterEach(() => rm(dataDir, { recursive: true }));

const db = () => queryBuilder<Tables>({ pool: registry.admin });
const key = (id: string): SecretKey => ({ id, key: randomBytes(keyBytes) });
const opened = (...secretKeys: SecretKey[]): Promise<KeyRing> => openKeyRing({ db: db(), dataDir, secretKeys });

async function backend(ring: KeyRing, secrets: Record<string, string>): Promise<string> {
  const id = newId();
  await db().insertInto('registry.backends').values({ id, name: id, type: 's3', config: {} }).execute();
  await inTransaction(db(), (trx) => writeSecrets(trx, ring, id, secrets));
  return id;
}

describe('secrets in the database', () => {
  test('come back as they were, and lie there in no readable form', async () => {
    const ring = new KeyRing([key('one')]);
    const id = await backend(ring, { password: 'hush hush', session_token: 'ключ' });
    expect((await readSecrets(db(), ring, id)).sealed).toEqual({ password: 'hush hush', session_token: 'ключ' });
    const { rows } = await registry.admin.query('select s::text as row from registry.backend_secrets s');
    expect(JSON.stringify(rows)).not.toContain(Buffer.from('hush').toString('hex'));
  });

  test('copied to another backend, or to another field, do not open', async () => {
    const ring = new KeyRing([key('one')]);
    const [from, to] = [await backend(ring, { password: 'hush' }), await backend(ring, { password: 'other' })];
    const copy = `update registry.backend_secrets t set nonce = f.nonce, sealed = f.sealed
      from registry.backend_secrets f where f.backend_id = $1 and t.backend_id = $2`;
    await registry.admin.query(copy, [from, to]);
    await refuses(readSecrets(db(), ring, to), 'unavailable');
    await registry.admin.query(`update registry.backend_secrets set field = 'username' where backend_id = $1`, [from]);
    await refuses(readSecrets(db(), ring, from), 'unavailable');
  });

  test('are read by the role of backend-registry alone', async () => {
    const { rows } = await registry.admin.query(`
      select r.rolname, t.name, has_table_privilege(r.rolname, t.name, 'select') as may
      from pg_roles r, (values ('registry.backend_secrets'), ('registry.secret_keys')) t (name)
      where r.rolname like 'stowage%'`);
    expect(rows.length).toBeGreaterThanOrEqual(12);
    for (const row of rows) expect(row).toEqual({ ...row, may: row.rolname === 'stowage_backend_registry' });
  });

  test('are not sealed by a process whose keys those that are sealed do not open with', async () => {
    const [one, two] = [new KeyRing([key('one')]), new KeyRing([key('two')])];
    await backend(one, { password: 'hush' });
    await refuses(backend(two, { password: 'hush' }), 'unavailable');
    await refuses(backend(new KeyRing([key('one')]), { password: 'hush' }), 'unavailable');
  });

  test('of two processes that each made a key only one can seal', async () => {
    const rings = [new KeyRing([key('one')]), new KeyRing([key('two')]), new KeyRing([key('three')])];
    const results = await Promise.allSettled(rings.map((ring) => backend(ring, { password: 'hush' })));
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
  });
});

describe('sealing anew', () => {
  test('brings all under the first key; the others can go then, and a second run does nothing', async () => {
    const [old, young] = [key('old'), key('young')];
    const before = new KeyRing([old]);
    const ids = await Promise.all(
      Array.from({ length: 130 }, (_, n) =>
        backend(before, { access_key_id: `id ${n}`, secret_access_key: `key ${n}` }),
      ),
    );
    const both = new KeyRing([young, old]);
    expect(await resealSecrets(db(), both)).toBe(260);
    expect(await resealSecrets(db(), both)).toBe(0);
    const after = await opened(young);
    for (const [n, id] of ids.entries()) {
      expect((await readSecrets(db(), after, id)).sealed).toEqual({
        access_key_id: `id ${n}`,
        secret_access_key: `key ${n}`,
      });
    }
    await refuses(readSecrets(db(), before, ids[0] ?? ''), 'unavailable');
    await expect(opened(old)).rejects.toThrow(StartupError);
  });

  test('beside another one, and beside changes, loses none', async () => {
    const [old, young] = [key('old'), key('young')];
    const both = new KeyRing([young, old]);
    const ids = await Promise.all(
      Array.from({ length: 40 }, (_, n) => backend(new KeyRing([old]), { password: `was ${n}` })),
    );
    const change = async (id: string): Promise<void> =>
      inTransaction(db(), (trx) => writeSecrets(trx, both, id, { password: 'changed' }));
    const changed = ids.slice(0, 10);
    await Promise.all([resealSecrets(db(), both), resealSecrets(db(), both), ...changed.map(change)]);
    for (const [n, id] of ids.entries()) {
      const password = changed.includes(id) ? 'changed' : `was ${n}`;
      expect((await readSecrets(db(), new KeyRing([young]), id)).sealed).toEqual({ password });
    }
  });
});

describe('the key in the data folder', () => {
  test('is made at the first start, for its owner alone, and found again', async () => {
    const ring = await opened();
    const file = keyFileIn(dataDir);
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    expect(await readdir(dataDir)).toEqual([path.basename(file)]);
    expect((await opened()).ids).toEqual(ring.ids);
  });

  test('is one when several processes make it at once', async () => {
    const keys = await Promise.all([1, 2, 3, 4, 5].map(() => makeKeyFile(dataDir)));
    expect(new Set(keys.map((made) => made.key.toString('hex'))).size).toBe(1);
    expect(await readdir(dataDir)).toHaveLength(1);
  });

  test('that is lost while secrets are sealed with it ends the start, and no other takes its place', async () => {
    const id = await backend(await opened(), { password: 'hush' });
    const file = keyFileIn(dataDir);
    const kept = await readFile(file);
    await rm(file);
    await expect(opened()).rejects.toThrow(/bring .*secret\.key back/);
    expect(await readdir(dataDir)).toEqual([]);
    await writeFile(file, kept);
    expect((await readSecrets(db(), await opened(), id)).sealed).toEqual({ password: 'hush' });
  });

  test('that is damaged, or another one of the same id, ends the start', async () => {
    const ring = await opened();
    await backend(ring, { password: 'hush' });
    const file = keyFileIn(dataDir);
    await writeFile(file, `${ring.sealingId}:${randomBytes(keyBytes).toString('base64')}`);
    await expect(opened()).rejects.toThrow(/is not the one that secrets were sealed with/);
    await writeFile(file, '');
    await expect(opened()).rejects.toThrow(/damaged/);
  });

  test('still opens what it sealed once the settings hold a key, which seals from then on', async () => {
    const id = await backend(await opened(), { password: 'hush' });
    const ring = await opened(key('set'));
    expect(ring.sealingId).toBe('set');
    expect((await readSecrets(db(), ring, id)).sealed).toEqual({ password: 'hush' });
  });

  test('that can’t be made ends the start with a sentence that says what to do', async () => {
    await writeFile(path.join(dataDir, 'in-the-way'), '');
    const inTheWay = { db: db(), dataDir: path.join(dataDir, 'in-the-way', 'data'), secretKeys: [] };
    await expect(openKeyRing(inTheWay)).rejects.toThrow(/secret\.key can't be .*set STOWAGE_SECRET_KEYS/);
  });

  test('is not made where the settings hold one', async () => {
    await opened(key('set'));
    expect(await readdir(dataDir)).toEqual([]);
  });
});
