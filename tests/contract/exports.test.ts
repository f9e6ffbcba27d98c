import { beforeAll, describe, expect, test } from '@jest/globals';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { createHash } from 'node:crypto';
import { request } from 'node:http';
import { gunzipSync } from 'node:zlib';
import { expectStatus } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { admin, baseUrl } from '@stowage/tests/support/contract';
import { danglingReferences, documentDigest } from '@stowage/tests/support/documents';
import { unknownId } from '@stowage/tests/support/routes';
import { uniqueName } from '@stowage/tests/support/system';

const path = '/api/exports/metadata';
let root: Client;

beforeAll(async () => {
  root = await admin();
});

/** An answer as it is on the wire: fetch would expand it. */
async function raw(method: string, acceptEncoding: string): Promise<{ headers: Json; body: Buffer }> {
  const { promise, resolve, reject } = Promise.withResolvers<{ headers: Json; body: Buffer }>();
  const headers = { authorization: `Bearer ${root.token}`, 'accept-encoding': acceptEncoding };
  const call = request(`${baseUrl()}${path}`, { method, headers }, (answer) => {
    answer.toArray().then((pieces) => resolve({ headers: answer.headers, body: Buffer.concat(pieces) }), reject);
  });
  call.on('error', reject).end();
  return promise;
}

describe('The export of all metadata', () => {
  test('is one document with all there is, its counts and its digest', async () => {
    const directory = await root.makeDirectory(uniqueName('smörgås 🧀'));
    const file = await root.putFile(`${uniqueName()} ファイル 𝒳.txt`, 'content', { directory: directory['id'] });
    const empty = await root.putFile(uniqueName('empty'), '');
    const deleted = await root.putFile(uniqueName('deleted'), 'deleted');
    expectStatus(await root.delete(`/api/files/${deleted['id']}`), 200);
    const answer = expectStatus(await root.get(path), 200);
    expect(answer.headers.get('content-type')).toBe('application/json');
    expect(answer.headers.get('cache-control')).toBe('no-store');
    expect(answer.headers.get('content-disposition')).toMatch(
      /^attachment; filename="stowage-metadata-\d{8}T\d{6}Z\.json"$/,
    );
    const document = answer.json;
    expect(document).toMatchObject({ format: 'stowage-metadata', format_version: 1, sha256: documentDigest(document) });
    for (const [section, count] of Object.entries(document['counts']))
      expect(document[section]).toHaveLength(Number(count));
    const files = new Map<string, Json>(document['files'].map((record: Json) => [record['id'], record]));
    expect(files.get(file['id'])).toMatchObject({ name: file['name'], parent_id: directory['id'], size: 7 });
    expect(files.get(deleted['id'])).toMatchObject({ deleted_at: expect.any(String), purge_at: expect.any(String) });
    const blobs = new Map<string, Json>(document['blobs'].map((record: Json) => [record['id'], record]));
    expect(blobs.get(files.get(empty['id'])?.['blob_id'])).toMatchObject({ size: 0, chunk_crc32c: '' });
    expect(blobs.get(files.get(file['id'])?.['blob_id'])).toMatchObject({
      size: 7,
      sha256: createHash('sha256').update('content').digest('hex'),
    });
  });

  test('has no reference that leads nowhere while others write', async () => {
    const over = new AbortController();
    const writer = async (): Promise<void> => {
      while (!over.signal.aborted) {
        const directory = await root.makeDirectory(uniqueName('busy'));
        const file = await root.putFile(uniqueName('busy'), 'busy', { directory: directory['id'] });
        expectStatus(await root.delete(`/api/files/${file['id']}`), 200);
        expectStatus(await root.delete(`/api/files/${file['id']}?permanent=true`), 204);
        expectStatus(await root.delete(`/api/directories/${directory['id']}`), 200);
      }
    };
    const writers = Array.from({ length: 4 }, writer);
    try {
      for (let round = 0; round < 5; round += 1) {
        const document = expectStatus(await root.get(path), 200).json;
        expect(danglingReferences(document)).toEqual([]);
        expect(document['sha256']).toBe(documentDigest(document));
      }
    } finally {
      over.abort();
      await Promise.all(writers);
    }
  });

  test('is what its schema says', async () => {
    const answer = expectStatus(await root.get(`${path}/schema`), 200);
    expect(answer.headers.get('content-type')).toBe('application/schema+json');
    const ajv = new Ajv2020({ strict: true, strictTypes: false, allErrors: true });
    const validate = ajv.compile(answer.json);
    const document = expectStatus(await root.get(path), 200).json;
    expect([validate(document), validate.errors]).toEqual([true, null]);
    expect(validate({ ...document, users: [] })).toBe(false);
    expect(answer.json['$schema']).toBe('https://json-schema.org/draft/2020-12/schema');
  });

  test('is compressed for whoever prefers that', async () => {
    const compressed = await raw('GET', 'br, gzip;q=0.9');
    expect(compressed.headers).toMatchObject({ 'content-encoding': 'gzip', vary: 'Accept-Encoding' });
    const document: Json = JSON.parse(gunzipSync(compressed.body).toString());
    expect(document['sha256']).toBe(documentDigest(document));
    for (const refusal of ['gzip;q=0', 'gzip;q=0, *', 'identity', '']) {
      const plain = await raw('GET', refusal);
      expect(plain.headers).toMatchObject({ vary: 'Accept-Encoding' });
      expect(plain.headers['content-encoding']).toBeUndefined();
      JSON.parse(plain.body.toString());
    }
  });

  test('HEAD tells the same headers and sends nothing', async () => {
    const { headers, body } = await raw('HEAD', 'gzip');
    expect(headers).toMatchObject({
      'content-type': 'application/json',
      'content-encoding': 'gzip',
      vary: 'Accept-Encoding',
      'cache-control': 'no-store',
    });
    expect(body).toHaveLength(0);
  });

  test('gives no other than it is asked for', async () => {
    expectStatus(await root.get(`${path}?id=${unknownId}`), 404);
    expectStatus(await root.get(`${path}?id=no-id`), 400);
    expectStatus(await root.get(`${path}?ids=${unknownId}`), 400);
  });
});
