import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { expectStatus, logIn, logInAs, until } from '@stowage/tests/support/client';
import type { Client } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { RawConnection } from '@stowage/tests/support/raw-http';
import { startSystem } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';
import { inBatches } from '@stowage/tests/support/tree';
import { createUpload, offsetType } from '@stowage/tests/support/uploads';

const kibibyte = 1024;
let system: System;
let database: pg.Client;
let clients: Client[];

beforeAll(async () => {
  system = await startSystem(mode(), { STOWAGE_UPLOAD_EXPIRY: '2s', STOWAGE_JOB_INTERVAL: '500ms' });
  database = new pg.Client({ connectionString: system.databaseUrl });
  await database.connect();
  const root = await logIn(system.url);
  clients = await Promise.all(['ada', 'grace', 'joan'].map((name) => logInAs(root, 'editor', name)));
});

afterAll(async () => {
  await database.end();
  await system.close();
});

/** A creation with its first bytes that breaks off in the middle of them, or before the first. */
async function abort(client: Client, n: number): Promise<void> {
  const connection = await RawConnection.open(system.url);
  await connection.request('POST', '/files', [
    ['authorization', `Bearer ${client.token}`],
    ['tus-resumable', '1.0.0'],
    ['upload-length', String(100 * kibibyte)],
    ['upload-metadata', `filename ${btoa(`aborted-${n}`)}`],
    ['content-type', offsetType],
    ['content-length', String(100 * kibibyte)],
    ['expect', '100-continue'],
  ]);
  // The upload is made by then.
  expect((await connection.answer()).status).toBe(100);
  const sent = [0, 1, 16 * kibibyte, 100 * kibibyte - 1][n % 4] ?? 0;
  if (sent > 0) await connection.send(randomBytes(sent));
  connection.cut();
}

async function rows(table: string, where = 'true'): Promise<number> {
  const { rows: counted } = await database.query(`select count(*)::int as n from ${table} where ${where}`);
  return counted[0].n;
}

test('400 creations that break off, and 200 that nobody goes on with, leave nothing once they expired (T32)', async () => {
  const local = join(system.dataDir, 'backends/local');
  const all = Array.from({ length: 400 }, (_, n) => n);
  const client = (n: number): Client => {
    const found = clients[n % clients.length];
    if (!found) throw new Error('there are no clients');
    return found;
  };
  await inBatches(all, (n) => abort(client(n), n));
  await inBatches(all.slice(0, 200), async (n) =>
    expectStatus(
      await createUpload(client(n), { length: 9, metadata: { filename: `left-${n}` }, body: Buffer.from('x') }),
      201,
    ),
  );
  // They stay for a day as ended, so that late writers are told.
  expect(await rows('upload.uploads')).toBe(600);
  await until(async () => (await rows('upload.uploads', `state in ('open', 'finalizing')`)) === 0, 45_000);
  await until(async () => (await readdir(join(local, 'staging'))).length === 0, 45_000);
  const blobs = await readdir(join(local, 'blobs'), { recursive: true, withFileTypes: true });
  expect(blobs.filter((entry) => entry.isFile())).toEqual([]);
  expect(await rows('catalog.nodes', `kind = 'file'`)).toBe(0);
  expect(await rows('upload.leases', 'expires_at > now()')).toBe(0);
  // Whoever was aborted has all of the limit of open uploads again.
  const next = await clients[0]?.putFile('whole.txt', 'whole');
  expect(next?.['size']).toBe(5);
}, 120_000);
