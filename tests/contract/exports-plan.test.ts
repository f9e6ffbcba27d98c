import { afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { gzipSync } from 'node:zlib';
import { newId } from '@stowage/common/ids';
import { makeBackend } from '@stowage/tests/support/backends';
import { expectStatus } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { admin } from '@stowage/tests/support/contract';
import { sealed, sendDocument } from '@stowage/tests/support/edited-documents';
import { readDocument } from '@stowage/tests/support/metadata-document';
import { expectProblem } from '@stowage/tests/support/problems';
import { uniqueName } from '@stowage/tests/support/system';

let root: Client;
beforeAll(async () => {
  root = await admin();
});
afterEach(async () => {
  await root.call('PUT', '/api/system/mode', { body: { mode: 'normal' } });
});

const plan = (document: Json | Uint8Array | string, headers: Record<string, string> = {}): Promise<Answer> =>
  sendDocument(root, 'restore-plan', document, headers);

function codesOf(findings: Json[]): string[] {
  return findings.map(({ code }) => String(code));
}

describe('A restore plan', () => {
  test('of what is there changes nothing, and gives a token for an hour', async () => {
    await root.putFile(uniqueName('kept'), 'kept');
    const document = await readDocument(root);
    const before = Date.now();
    const answer = expectStatus(await plan(document), 200);
    expect(answer.headers.get('cache-control')).toMatch(/no-store/);
    const { json } = answer;
    expect(json).toMatchObject({
      validation_token: expect.stringMatching(/^[\w-]{43}$/),
      document_sha256: document['sha256'],
      blockers: [],
    });
    const lasts = Date.parse(json['expires_at']) - before;
    expect(Math.round(lasts / 60_000)).toBe(60);
    for (const [section, count] of Object.entries(document['counts'])) {
      expect([section, json['changes'][section]]).toEqual([
        section,
        { create: 0, update: 0, remove: 0, unchanged: count },
      ]);
    }
    expect(json['backends']).toHaveLength(document['backends'].length);
    for (const backend of json['backends']) {
      expect(backend).toMatchObject({ action: 'unchanged', missing_secret_fields: [] });
    }
    expect(codesOf(json['warnings'])).toEqual(
      expect.arrayContaining(['not_read_only', 'replicas_unverified', 'removals_held']),
    );
  });

  test('counts what would be made, changed and removed, and tells of files that are newer', async () => {
    const changed = await root.putFile(uniqueName('changed'), 'changed');
    const inRoot = await root.makeDirectory(uniqueName('in the root'));
    const old = await readDocument(root);
    const aDirectory = old['directories'].find(({ id }: Json) => id === inRoot['id']);
    const added = await root.makeDirectory(uniqueName('added'));
    await root.putFile(uniqueName('newer'), 'newer', { directory: added['id'] });
    const document = sealed({
      ...old,
      files: old['files'].map((file: Json) => (file['id'] === changed['id'] ? { ...file, name: uniqueName() } : file)),
      directories: [...old['directories'], { ...aDirectory, id: newId(), name: uniqueName() }],
    });
    const { json } = expectStatus(await plan(document), 200);
    expect(json['changes']).toMatchObject({
      directories: { create: 1, update: 0, remove: 1 },
      files: { create: 0, update: 1, remove: 1 },
      blobs: { create: 0, update: 0, remove: 1 },
      policies: { create: 0, update: 0, remove: 0 },
    });
    const newer = json['warnings'].find(({ code }: Json) => code === 'newer_files_lost');
    expect(newer).toMatchObject({ pointer: '/files', detail: expect.stringMatching(/: 1\.$/) });
  });

  test('tells what becomes of each backend, and which secrets would have to be given again', async () => {
    const [gone, kept] = [await makeBackend(root), await makeBackend(root)];
    const old = await readDocument(root);
    const [moved, made] = [{ ...kept, root_path: `${kept['config'].root_path}-elsewhere` }, newId()];
    const template = old['backends'].find((backend: Json) => backend['id'] === kept['id']);
    const document = sealed({
      ...old,
      backends: [
        ...old['backends'].filter(({ id }: Json) => id !== gone['id'] && id !== kept['id']),
        { ...template, config: { root_path: moved.root_path } },
        {
          ...template,
          id: made,
          name: uniqueName('far'),
          type: 's3',
          config: { endpoint: null, region: 'eu-central-1', bucket: 'far-away' },
          secret_fields: ['access_key_id', 'secret_access_key', 'session_token'],
        },
      ],
    });
    const { json } = expectStatus(await plan(document), 200);
    const backends = new Map<string, Json>(json['backends'].map((backend: Json) => [backend['id'], backend]));
    expect(backends.get(gone['id'])).toMatchObject({ action: 'remove', name: gone['name'], missing_secret_fields: [] });
    expect(backends.get(kept['id'])).toMatchObject({ action: 'update', missing_secret_fields: [] });
    expect(backends.get(made)).toMatchObject({
      action: 'create',
      missing_secret_fields: ['access_key_id', 'secret_access_key', 'session_token'],
    });
    const codes = codesOf(json['warnings']);
    expect(codes.filter((code) => code === 'backend_disabled')).toHaveLength(2);
    expect(codes).toContain('backend_removed');
    for (const { id } of [gone, kept]) {
      expectStatus(await root.post(`/api/backends/${id}/disable`), 200);
      expectStatus(await root.delete(`/api/backends/${id}`), 204);
    }
  });

  test('takes a compressed document, and goes on in read-only mode', async () => {
    const document = await readDocument(root);
    expectStatus(await root.call('PUT', '/api/system/mode', { body: { mode: 'read_only' } }), 200);
    const compressed = gzipSync(JSON.stringify(document));
    const { json } = expectStatus(await plan(compressed, { 'content-encoding': 'gzip' }), 200);
    expect(json['document_sha256']).toBe(document['sha256']);
    expect(codesOf(json['warnings'])).not.toContain('not_read_only');
  });

  test('of a document that is not valid is refused with what is wrong with it', async () => {
    const document = await readDocument(root);
    const lost = sealed({ ...document, backends: [] });
    const problem = expectProblem(await plan(lost), 422, 'unprocessable');
    expect(problem['errors']).toContainEqual({
      pointer: '/backends',
      code: expect.any(String),
      detail: expect.any(String),
    });
    expect(problem).not.toHaveProperty('validation_token');
    const tampered = expectProblem(await plan({ ...document, sha256: '0'.repeat(64) }), 422, 'unprocessable');
    expect(tampered['errors']).toMatchObject([{ pointer: '/sha256' }]);
    expectProblem(await plan('{"format": '), 422, 'unprocessable');
    expectProblem(await plan('not json'), 400, 'validation_failed');
  });

  test('takes JSON and nothing else', async () => {
    const xml = { 'content-type': 'application/xml' };
    expectProblem(await plan('<metadata/>', xml), 415, 'unsupported_media_type');
    expectProblem(await plan('{}', { 'content-encoding': 'br' }), 415, 'unsupported_media_type');
    expectProblem(await plan('{}', { 'content-encoding': 'gzip' }), 400, 'validation_failed');
  });
});
