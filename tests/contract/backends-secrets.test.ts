import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { databaseText, findCanaries, secret } from '@stowage/tests/support/canaries';
import { expectStatus, logIn } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { expectProblem } from '@stowage/tests/support/problems';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';

const repository = join(import.meta.dirname, '../..');
const word = (): string => `canary${randomBytes(12).toString('hex')}`;
const newKey = (id: string): string => `${id}:${randomBytes(32).toString('base64')}`;

let system: System;
let root: Client;
/** Everything that was answered. */
const answered: string[] = [];

beforeAll(async () => {
  system = await startSystem(mode(), { STOWAGE_LOG_LEVEL: 'trace', STOWAGE_LOGIN_FAILURES_PER_ADDRESS: '1000' });
  root = await logIn(system.url);
});
afterAll(() => system.close());

function noted(answer: Answer): Answer {
  answered.push(JSON.stringify([...answer.headers]), answer.bytes.toString());
  return answer;
}

async function send(method: string, path: string, body: Json, headers: Record<string, string> = {}): Promise<Answer> {
  return noted(await root.call(method, path, { body, headers }));
}

/** At an address where nobody listens. */
const s3 = { endpoint: 'http://127.0.0.1:9', region: 'us-east-1', bucket: 'team-files' };

async function sealedRows(id: string): Promise<Json[]> {
  const database = new pg.Client({ connectionString: system.databaseUrl });
  await database.connect();
  const { rows } = await database.query(
    `select field, key_id, encode(sealed, 'hex') as sealed from registry.backend_secrets where backend_id = $1 order by field`,
    [id],
  );
  await database.end();
  return rows;
}

describe('The secrets of a backend', () => {
  const words = {
    access_key_id: word(),
    secret_access_key: word(),
    session_token: word(),
    changed: word(),
    refused: word(),
  };
  let id: string;

  beforeAll(async () => {
    const { access_key_id, secret_access_key, session_token } = words;
    const config = { ...s3, access_key_id, secret_access_key, session_token };
    const headers = { 'idempotency-key': uniqueName('key') };
    const body = { name: uniqueName('backend'), type: 's3', config };
    const { json } = expectStatus(await send('POST', '/api/backends', body, headers), 201);
    expectStatus(await send('POST', '/api/backends', body, headers), 201);
    expect(json).toMatchObject({ config: s3, health: { status: 'unhealthy' } });
    expect(json['secret_fields']).toEqual(['access_key_id', 'secret_access_key', 'session_token']);
    id = json['id'];
  });

  const patch = (config: Json): Promise<Answer> => send('PATCH', `/api/backends/${id}`, { config });

  test('are kept where they are left out, null or empty, and replaced by a new value', async () => {
    const before = await sealedRows(id);
    for (const config of [{}, { secret_access_key: null }, { secret_access_key: '' }, { region: 'eu-central-1' }]) {
      expect(expectStatus(await patch(config), 200).json['secret_fields']).toHaveLength(3);
    }
    expect(await sealedRows(id)).toEqual(before);
    expectStatus(await patch({ secret_access_key: words.changed }), 200);
    const after = await sealedRows(id);
    expect(after.map(({ sealed }, n) => sealed === before[n]?.['sealed'])).toEqual([true, false, true]);
  });

  test('are not taken from a mask', async () => {
    const before = await sealedRows(id);
    expectProblem(await patch({ secret_access_key: '••••••••' }), 400, 'validation_failed');
    expect(await sealedRows(id)).toEqual(before);
  });

  test('stand in no answer, no log and nowhere in the database', async () => {
    const { refused } = words;
    expectProblem(await patch({ password: refused }), 400, 'validation_failed');
    expectProblem(await patch({ endpoint: `http://user:${refused}@host.invalid` }), 400, 'validation_failed');
    expectProblem(await patch({ secret_access_key: `${refused}\u0007` }), 400, 'validation_failed');
    expectProblem(await patch({ region: refused.toUpperCase() }), 400, 'validation_failed');
    expectProblem(
      await send('PATCH', `/api/backends/${id}`, { secrets: { password: refused } }),
      400,
      'validation_failed',
    );
    expectStatus(noted(await root.post(`/api/backends/${id}/check`)), 200);
    noted(await root.get('/api/backends'));
    noted(await root.get(`/api/backends/${id}`));
    noted(await root.get('/api/jobs'));
    noted(await root.delete(`/api/backends/${id}`));
    const canaries = Object.entries(words).map(([what, value]) => secret(what, value));
    const database = [...(await databaseText(system.databaseUrl)).values()].join('\n');
    expect(findCanaries(answered.join('\n'), canaries)).toEqual([]);
    expect(findCanaries(system.output(), canaries)).toEqual([]);
    expect(findCanaries(database, canaries)).toEqual([]);
  });
});

describe('The key', () => {
  async function reseal(environment: Record<string, string>): Promise<{ code: number; output: string }> {
    const child = spawn(process.execPath, [join(repository, 'launcher/src/reseal-secrets.ts')], {
      cwd: repository,
      env: {
        PATH: process.env['PATH'],
        HOME: process.env['HOME'],
        STOWAGE_DATABASE_URL: system.databaseUrl,
        STOWAGE_DATA_DIR: system.dataDir,
        ...environment,
      },
    });
    let output = '';
    child.stdout.on('data', (piece) => (output += piece));
    child.stderr.on('data', (piece) => (output += piece));
    const [code] = await once(child, 'close');
    return { code, output };
  }

  test('lies in the data folder for its owner alone, and is replaced by one of the settings through sealing anew', async () => {
    const config = { ...s3, bucket: uniqueName('bucket'), access_key_id: 'id', secret_access_key: 'key' };
    const made = await send('POST', '/api/backends', { name: uniqueName('backend'), type: 's3', config });
    const { id } = expectStatus(made, 201).json;
    const file = join(system.dataDir, 'secret.key');
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    const [keyId] = (await readFile(file, 'utf8')).split(':');
    expect((await sealedRows(id)).map((row) => row['key_id'])).toEqual([keyId, keyId]);

    const key = newKey('fresh');
    expect(await reseal({ STOWAGE_SECRET_KEYS: key })).toEqual({
      code: 0,
      output: expect.stringMatching(/^\d+ secrets/),
    });
    expect(await reseal({ STOWAGE_SECRET_KEYS: key })).toEqual({
      code: 0,
      output: expect.stringMatching(/^0 secrets/),
    });
    expect((await sealedRows(id)).map((row) => row['key_id'])).toEqual(['fresh', 'fresh']);

    expect(await system.stop()).toBe(0);
    await rm(file);
    await expect(system.restart()).rejects.toThrow(/sealed under "fresh", and that key is not there/);
    await system.restart({ STOWAGE_SECRET_KEYS: key });
    root = await logIn(system.url);
    const { json } = expectStatus(await root.post(`/api/backends/${id}/check`), 200);
    expect(json['health'].detail).not.toMatch(/secret/);
  });
});
