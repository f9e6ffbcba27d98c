import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import { readEnvelope } from './read-envelope.ts';
import type { Envelope } from './read-envelope.ts';
import { documentOf, headOf, sampleRecords } from './test-documents.ts';
import { startTestMetadata } from './test-metadata.ts';
import type { TestMetadata } from './test-metadata.ts';

let metadata: TestMetadata;
const records = sampleRecords();
const document = documentOf(records);
const sha256 = String(headOf(records)['sha256']);

beforeAll(async () => {
  metadata = await startTestMetadata();
});
afterAll(() => metadata.close());

function read(text: string, gzip = false): Promise<Envelope> {
  const body = gzip ? gzipSync(text) : Buffer.from(text);
  const { signal } = new AbortController();
  return readEnvelope(metadata.database.bulk, Readable.from([body]), { gzip, limit: 2 ** 30, signal });
}

test('gives the fields, and the digest of the document wherever it stands', async () => {
  const fields = '"confirm_replace":true,"validation_token":"token"';
  for (const text of [`{${fields},"document":${document}}`, `{ "document" : ${document}, ${fields} }`]) {
    for (const gzip of [false, true]) {
      const envelope = await read(text, gzip);
      expect(Object.fromEntries(envelope.fields)).toEqual({ confirm_replace: true, validation_token: 'token' });
      expect(envelope.document).toEqual({ errors: [], sha256 });
    }
  }
});

test('tells the digest of a document whose sections come in another order', async () => {
  const reversed = Object.fromEntries(Object.entries(JSON.parse(document)).reverse());
  expect((await read(JSON.stringify({ document: reversed }))).document).toEqual({ errors: [], sha256 });
});

test('needs no document, and no connection for what is no document', async () => {
  const closed = await startTestMetadata();
  await closed.close();
  const { signal } = new AbortController();
  const body = Readable.from([Buffer.from('{"confirm_replace":false}')]);
  const { fields, document: none } = await readEnvelope(closed.database.bulk, body, { gzip: false, limit: 99, signal });
  expect([Object.fromEntries(fields), none]).toEqual([{ confirm_replace: false }, null]);
  expect((await read('{"document":null}')).fields.get('document')).toBeNull();
});

test('tells what is wrong with the document', async () => {
  const { document: found } = await read(`{"document":${document.replace(sha256, 'ab'.repeat(32))}}`);
  expect(found).toEqual({ errors: [expect.objectContaining({ code: 'digest_mismatch' })], sha256 });
});

describe('what is no envelope', () => {
  test.each([
    ['a field twice', '{"validation_token":1,"validation_token":2}'],
    ['a document twice', `{"document":${document},"document":${document}}`],
    ['a document twice, once as nothing', `{"document":${document},"document":null}`],
    ['a field that is no JSON', '{"confirm_replace":tru}'],
    ['one that is cut short', '{"confirm_replace":true'],
    ['a document that is cut short', `{"confirm_replace":true,"document":${document.slice(0, 900)}`],
    ['a document of another format', '{"document":{"format":"tar"},"confirm_replace":true}'],
    ['something after it', '{"confirm_replace":true} true'],
    ['too many fields', JSON.stringify(Object.fromEntries(Array.from({ length: 17 }, (_, n) => [n, n])))],
  ])('%s', async (_what, text) => {
    await expect(read(text)).rejects.toMatchObject({ code: 'validation_failed' });
  });

  test('one beyond the limit', async () => {
    const body = Readable.from([gzipSync(`{"confirm_replace":${' '.repeat(1_000_000)}true}`)]);
    const { signal } = new AbortController();
    const reading = readEnvelope(metadata.database.bulk, body, { gzip: true, limit: 100_000, signal });
    await expect(reading).rejects.toMatchObject({ code: 'payload_too_large' });
  });
});
