import { beforeAll, describe, expect, test } from '@jest/globals';
import { Client, expectStatus, logIn, logInAs, sha256 } from '../support/client.ts';
import type { Answer } from '../support/client.ts';
import { admin, baseUrl } from '../support/contract.ts';
import { expectProblem } from '../support/problems.ts';
import { uniqueName } from '../support/system.ts';
import {
  append,
  completeUpload,
  contentOf,
  expectTusProblem,
  finalize,
  makeUpload,
  offsetOf,
} from '../support/uploads.ts';

const unknownId = '0193fa2c-7a3e-7cc1-9f0e-0d5f1a2b3c4d';
const instant = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

describe('GET /api/uploads/{id}', () => {
  let client: Client;

  beforeAll(async () => {
    client = await admin();
  });

  test('shows an upload from its creation to its file', async () => {
    const filename = uniqueName('shown');
    const metadata = { filename, filetype: 'text/plain', file_class: 'notes', sha256: sha256('12345678') };
    const upload = await makeUpload(client, { length: 8, metadata, body: Buffer.from('1234') });
    const shown = expectStatus(await client.get(`/api/uploads/${upload.id}`), 200).json;
    expect(shown).toEqual({
      id: upload.id,
      state: 'uploading',
      offset: 4,
      length: 8,
      filename,
      directory_id: null,
      media_type: 'text/plain',
      file_class: 'notes',
      sha256: sha256('12345678'),
      file_id: null,
      created_at: expect.stringMatching(instant),
      expires_at: expect.stringMatching(instant),
    });
    expectStatus(await append(client, upload.path, 4, Buffer.from('5678')), 204);
    const file = expectStatus(await finalize(client, upload), 201).json;
    const after = expectStatus(await client.get(`/api/uploads/${upload.id}`), 200).json;
    expect(after).toMatchObject({ state: 'finalized', offset: 8, length: 8, file_id: file['id'] });
  });

  test('leaves no field out where nothing is known', async () => {
    const upload = await makeUpload(client, { length: null });
    const shown = expectStatus(await client.get(`/api/uploads/${upload.id}`), 200).json;
    expect(shown).toMatchObject({
      offset: 0,
      length: null,
      filename: null,
      media_type: null,
      file_class: null,
      sha256: null,
      file_id: null,
    });
  });

  test('E01 and E02 Upload-Expires comes with creation and every PATCH, as an HTTP date a day ahead', async () => {
    const upload = await makeUpload(client, { length: 8, metadata: { filename: uniqueName() } });
    const patched = expectStatus(await append(client, upload.path, 0, Buffer.from('1234')), 204);
    for (const { headers } of [upload.answer, patched]) {
      const expires = headers.get('upload-expires') ?? '';
      expect(expires).toMatch(/^(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT$/);
      const hours = (Date.parse(expires) - Date.now()) / 3_600_000;
      expect(hours).toBeGreaterThan(23.9);
      expect(hours).toBeLessThan(24.1);
    }
  });
});

describe('whose an upload is', () => {
  let root: Client;
  let owner: Client;
  let other: Client;
  const ownerName = uniqueName('owner');

  beforeAll(async () => {
    root = await admin();
    owner = await logInAs(root, 'editor', ownerName);
    other = await logInAs(root, 'editor', uniqueName('other'));
  });

  const withoutIds = ({ status, headers, json }: Answer): unknown => ({
    status,
    offset: headers.get('upload-offset'),
    length: headers.get('upload-length'),
    body: { ...json, request_id: null },
  });

  test.each<[string, (client: Client, id: string) => Promise<Answer>]>([
    ['HEAD', (client, id) => client.tus('HEAD', `/files/${id}`)],
    ['PATCH', (client, id) => append(client, `/files/${id}`, 0, Buffer.from('evil'))],
    [
      'PATCH by override',
      (client, id) =>
        client.tus(
          'POST',
          `/files/${id}`,
          { 'x-http-method-override': 'PATCH', 'upload-offset': '0' },
          Buffer.from('evil'),
        ),
    ],
    ['DELETE', (client, id) => client.tus('DELETE', `/files/${id}`)],
    ['finalize', (client, id) => finalize(client, { id }, { filename: uniqueName() })],
    ['GET', (client, id) => client.get(`/api/uploads/${id}`)],
  ])('T09 %s on another user’s upload is the same 404 as on an unknown one', async (_name, call) => {
    for (const length of [8, 4]) {
      const upload = await makeUpload(owner, {
        length,
        metadata: { filename: uniqueName() },
        body: Buffer.from('mine'),
      });
      const foreign = await call(other, upload.id);
      expect(foreign.status).toBe(404);
      expect(withoutIds(foreign)).toEqual(withoutIds(await call(other, unknownId)));
      expect(await offsetOf(owner, upload.path)).toBe(4);
    }
  });

  test('X05 only the owner can end an upload', async () => {
    const upload = await makeUpload(owner, { length: 4 });
    expectTusProblem(await other.tus('DELETE', upload.path), 404, 'not_found');
    expectStatus(await owner.tus('DELETE', upload.path), 204);
  });

  test('an admin may see it, and not touch it', async () => {
    const upload = await makeUpload(owner, { length: 8, body: Buffer.from('mine') });
    expectTusProblem(await append(root, upload.path, 4, Buffer.from('evil')), 404, 'not_found');
    expectTusProblem(await root.tus('DELETE', upload.path), 404, 'not_found');
    expectProblem(await finalize(root, upload, { filename: uniqueName() }), 404, 'not_found');
    expect(await offsetOf(root, upload.path)).toBe(4);
    expect(expectStatus(await root.get(`/api/uploads/${upload.id}`), 200).json['offset']).toBe(4);
  });

  test('it belongs to the user, not to the token: after a new login it goes on', async () => {
    const first = await logIn(baseUrl(), ownerName, `password of ${ownerName}`);
    const upload = await makeUpload(first, {
      length: 8,
      metadata: { filename: uniqueName('relogged') },
      body: Buffer.from('1234'),
    });
    expectStatus(await first.post('/api/auth/logout'), 204);
    expectTusProblem(await append(first, upload.path, 4, Buffer.from('5678')), 401, 'unauthenticated');
    const second = await logIn(baseUrl(), ownerName, `password of ${ownerName}`);
    expect(await offsetOf(second, upload.path)).toBe(4);
    expectStatus(await append(second, upload.path, 4, Buffer.from('5678')), 204);
    const file = expectStatus(await finalize(second, upload), 201).json;
    expect((await contentOf(second, file['id'])).toString()).toBe('12345678');
  });

  test('without a token nothing is told, HEAD included', async () => {
    const upload = await completeUpload(owner, Buffer.from('x'), { filename: uniqueName() });
    const nobody = new Client(baseUrl());
    for (const method of ['HEAD', 'PATCH', 'DELETE', 'POST']) {
      const answer = await nobody.tus(method, method === 'POST' ? '/files' : upload.path);
      expect([answer.status, answer.headers.get('upload-offset')]).toEqual([401, null]);
      expect(answer.headers.get('www-authenticate')).toBe('Bearer');
    }
  });
});
