import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import pg from 'pg';
import { newId } from '@stowage/common/ids';
import { expectStatus, logIn, logInAs } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { sealed, sendDocument } from '@stowage/tests/support/edited-documents';
import { readDocument } from '@stowage/tests/support/metadata-document';
import { expectProblem, pointersOf } from '@stowage/tests/support/problems';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';

let system: System;
let root: Client;
let database: pg.Client;

beforeAll(async () => {
  system = await startSystem(mode(), { STOWAGE_JOB_INTERVAL: '20d', STOWAGE_CHECK_INTERVAL: '20d' });
  root = await logIn(system.url);
  database = new pg.Client({ connectionString: system.databaseUrl });
  await database.connect();
});
afterAll(async () => {
  await database.end();
  await system.close();
});

const plan = (document: Json): Promise<Answer> => sendDocument(root, 'restore-plan', document);

async function tokenFor(document: Json): Promise<string> {
  return expectStatus(await plan(document), 200).json['validation_token'];
}

function importing(token: unknown, more: Json = {}, client = root): Promise<Answer> {
  const body = { confirm_replace: true, validation_token: token, ...more };
  return client.post('/api/exports/metadata/import', body);
}

/** A server that notes what it is asked, with all that a store would be told. */
class Listener {
  readonly heard: string[] = [];
  readonly #server: Server = createServer((request, response) => {
    this.heard.push([request.url, ...request.rawHeaders].join(' '));
    response.writeHead(403).end();
  });

  async start(): Promise<string> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#server.listen(0, '127.0.0.1', resolve);
    await promise;
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}

describe('A crafted document (T34)', () => {
  test('sends no secret that is known to another place', async () => {
    const [owner, attacker] = [new Listener(), new Listener()];
    const canary = `canary-${newId()}`;
    const webdav = {
      name: uniqueName('dav'),
      type: 'webdav',
      config: { url: await owner.start(), username: 'ada', password: canary },
    };
    const { id } = expectStatus(await root.post('/api/backends', webdav), 201).json;
    expect(owner.heard.length).toBeGreaterThan(0);
    const now = await readDocument(root);
    const elsewhere = { url: await attacker.start(), username: 'ada' };
    const crafted = sealed({
      ...now,
      backends: now['backends'].map((backend: Json) =>
        backend['id'] === id ? { ...backend, config: elsewhere } : backend,
      ),
    });
    const answer = expectStatus(await plan(crafted), 200);
    expect(answer.bytes.toString()).not.toContain(canary);
    const told = answer.json['backends'].find((backend: Json) => backend['id'] === id);
    expect(told).toMatchObject({ action: 'update', missing_secret_fields: ['password'] });
    expectStatus(await importing(answer.json['validation_token']), 200);
    const imported = expectStatus(await root.get(`/api/backends/${id}`), 200).json;
    expect(imported).toMatchObject({ state: 'disabled', secret_fields: [], config: elsewhere });
    await root.post(`/api/backends/${id}/enable`);
    await root.post(`/api/backends/${id}/check`);
    expect(attacker.heard.filter((heard) => /authorization/i.test(heard))).toEqual([]);
    // Nor is it brought back by the place that it was given for: it is gone.
    await root.call('PATCH', `/api/backends/${id}`, { body: { config: { url: webdav.config.url } } });
    expect(expectStatus(await root.get(`/api/backends/${id}`), 200).json).toMatchObject({ secret_fields: [] });
    owner.close();
    attacker.close();
  });

  test('makes no default backend of a folder outside of those that are allowed', async () => {
    const now = await readDocument(root);
    const crafted = sealed({
      ...now,
      backends: now['backends'].map((backend: Json) =>
        backend['is_default'] ? { ...backend, config: { root_path: '/etc' } } : backend,
      ),
    });
    const { json } = expectStatus(await plan(crafted), 200);
    expect(json).toMatchObject({
      validation_token: null,
      expires_at: null,
      blockers: [{ code: 'default_elsewhere', pointer: expect.stringMatching(/^\/backends\/\d+\/config\/root_path$/) }],
    });
    const { rows } = await database.query(`select from export.plans where document_sha256 = decode($1, 'hex')`, [
      crafted['sha256'],
    ]);
    expect(rows).toHaveLength(0);
  });

  test('brings no users, and nothing else that is not in the schema', async () => {
    const now = await readDocument(root);
    const users = [{ username: 'mallory', role: 'admin', password_hash: '$argon2id$x' }];
    const [backend, ...others] = now['backends'];
    const extended = (extra: Json): Json => sealed({ ...now, backends: [{ ...backend, ...extra }, ...others] });
    const config = (type: string, values: Json): Json => extended({ type, is_default: true, config: values });
    const s3 = { bucket: 'files', endpoint: null, region: 'eu-central-1' };
    const crafted: [Json, RegExp][] = [
      [{ ...now, users }, /^\/users/],
      [extended({ secrets: { password: 'x' } }), /^\/backends\/0\/secrets/],
      [extended({ health_status: 'healthy' }), /^\/backends\/0\/health_status/],
      [config('s3', { ...s3, secret_access_key: 'x' }), /^\/backends\/0\/config/],
      [config('s3', { ...s3, region: 'evil.example/#' }), /^\/backends\/0\/config/],
      [config('s3', { ...s3, endpoint: 'http://user:word@evil.example' }), /^\/backends\/0\/config/],
      [config('webdav', { url: 'file:///etc/passwd', username: 'x' }), /^\/backends\/0\/config/],
      [config('local_directory', { root_path: '../../etc' }), /^\/backends\/0\/config/],
    ];
    for (const [document, pointer] of crafted) {
      const pointers = pointersOf(expectProblem(await plan(document), 422, 'unprocessable'));
      expect([String(pointer), pointers.some((found) => pointer.test(found))]).toEqual([String(pointer), true]);
    }
  });

  test('leaves users and sessions as they are', async () => {
    const colleague = await logInAs(root, 'editor', uniqueName('colleague'));
    const before = expectStatus(await root.get('/api/users?limit=1000'), 200).json;
    expectStatus(await importing(await tokenFor(await readDocument(root))), 200);
    expect(expectStatus(await root.get('/api/users?limit=1000'), 200).json).toEqual(before);
    expectStatus(await colleague.get('/api/auth/me'), 200);
  });
});

describe('The token of a plan (T35)', () => {
  test('is good for one import', async () => {
    const token = await tokenFor(await readDocument(root));
    expectStatus(await importing(token), 200);
    expectProblem(await importing(token), 409, 'plan_stale');
  });

  test('is of no use to another admin, who learns nothing by it', async () => {
    const other = await logInAs(root, 'admin', uniqueName('other'));
    const token = await tokenFor(await readDocument(root));
    const stolen = expectProblem(await importing(token, {}, other), 409, 'plan_stale');
    const madeUp = expectProblem(await importing('A'.repeat(43), {}, other), 409, 'plan_stale');
    expect(stolen['detail']).toBe(madeUp['detail']);
    expectStatus(await importing(token), 200);
  });

  test('is for the document that was planned, which may be sent again', async () => {
    const document = await readDocument(root);
    const token = await tokenFor(document);
    const swapped = sealed({
      ...document,
      policies: document['policies'].map((one: Json) => ({ ...one, version: 99 })),
    });
    expectProblem(await importing(token, { document: swapped }), 409, 'plan_stale');
    expectStatus(await importing(token, { document }), 200);
  });

  test('is stale after any change of what it was made for, and never after what the service does by itself', async () => {
    const changes: Record<string, () => Promise<unknown>> = {
      directory: () => root.makeDirectory(uniqueName('made')),
      file: () => root.putFile(uniqueName('made'), 'made'),
      policy: async () => {
        const { json } = expectStatus(await root.get('/api/policies/placement/default'), 200);
        const body = { backends: json['backends'], replicas: json['replicas'] };
        return expectStatus(await root.call('PUT', '/api/policies/placement/default', { body }), 200);
      },
      backend: async () => {
        const id = expectStatus(await root.get('/api/backends'), 200).json['items'][0].id;
        return expectStatus(await root.call('PATCH', `/api/backends/${id}`, { body: { name: uniqueName() } }), 200);
      },
    };
    for (const [what, change] of Object.entries(changes)) {
      const token = await tokenFor(await readDocument(root));
      await change();
      const answer = await importing(token);
      expect([what, answer.status, answer.json['code']]).toEqual([what, 409, 'plan_stale']);
      expect(expectProblem(await importing(token), 409, 'plan_stale')['detail']).toMatch(/changed/);
    }
    const token = await tokenFor(await readDocument(root));
    for (const { id } of expectStatus(await root.get('/api/backends'), 200).json['items']) {
      expectStatus(await root.post(`/api/backends/${id}/check`), 200);
    }
    expectStatus(await root.post('/api/jobs/enqueue-full-reconcile'), 202);
    expectStatus(await root.post('/api/jobs/run-pending', { wait_seconds: 20 }), 200);
    expectStatus(await importing(token), 200);
  });

  test('expires, and is nothing that could be made up', async () => {
    const token = await tokenFor(await readDocument(root));
    await database.query(`update export.plans set expires_at = now() - interval '1 second'`);
    expectProblem(await importing(token), 409, 'plan_stale');
    for (const madeUp of ['', 'A'.repeat(43), `${token}A`, token.slice(1), token.toUpperCase(), "' or true --"]) {
      expectProblem(await importing(madeUp), 409, 'plan_stale');
    }
    for (const odd of [1, {}, [token], null]) expect([400, 409]).toContain((await importing(odd)).status);
  });

  test('serves one of two imports at a time', async () => {
    const token = await tokenFor(await readDocument(root));
    const answers = await Promise.all([importing(token), importing(token), importing(token)]);
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409, 409]);
    for (const answer of answers.filter(({ status }) => status === 409)) expectProblem(answer, 409, 'plan_stale');
  });

  test('is not spent by an import that nobody confirmed', async () => {
    const token = await tokenFor(await readDocument(root));
    for (const refused of [{ confirm_replace: false }, { confirm_replace: null }, { confirm_replace: undefined }]) {
      expect([400, 409]).toContain((await importing(token, refused)).status);
    }
    const path = '/api/exports/metadata/import?confirm_replace=false';
    const answer = await root.post(path, { confirm_replace: true, validation_token: token });
    expectProblem(answer, 409, 'confirmation_required');
    expectStatus(await importing(token), 200);
  });
});
