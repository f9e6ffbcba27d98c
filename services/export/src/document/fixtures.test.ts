import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { Errors } from 'typebox/schema';
import { documentDigest } from '@stowage/tests/support/documents';
import { documentFormat, documentSchema } from './document-schema.ts';
import { stageDocument } from './stage-document.ts';
import { startTestMetadata } from './test-metadata.ts';
import type { TestMetadata } from './test-metadata.ts';
import { currentVersion, oldestVersion } from './upgrade.ts';

/** A document of each format version that was ever written: neither its bytes nor what they mean may change. */
const fixtures = [
  {
    version: 1,
    bytes: 'fb1cefd4b7b64416df64ee546e7b618917053158624332df1e85b702c75a63e9',
    digest: '768843a5e3208e22340a728aaa0da7fa8158efcdbb269cb8c5fa427d288cfb10',
  },
];

let metadata: TestMetadata;

beforeAll(async () => {
  metadata = await startTestMetadata();
});

afterAll(() => metadata.close());

function fixture(name: string): Promise<Buffer> {
  return readFile(new URL(`fixtures/${name}`, import.meta.url));
}

test('there is a fixture of each format version that is read', () => {
  expect(fixtures.map(({ version }) => version)).toEqual(
    expect.arrayContaining(Array.from({ length: currentVersion - oldestVersion + 1 }, (_, n) => oldestVersion + n)),
  );
  expect(currentVersion).toBe(documentFormat.format_version);
});

describe.each(fixtures)('the fixture of format $version', ({ version, bytes, digest }) => {
  test('is what it was, by its bytes and by its digest', async () => {
    const content = await fixture(`format-${version}.json`);
    expect(createHash('sha256').update(content).digest('hex')).toBe(bytes);
    const document = JSON.parse(content.toString());
    expect([document.sha256, documentDigest(document)]).toEqual([digest, digest]);
  });

  test('is what the schema of its version says', async () => {
    const schema = JSON.parse((await fixture(`format-${version}.schema.json`)).toString());
    const document = JSON.parse((await fixture(`format-${version}.json`)).toString());
    expect(Errors(schema, document)).toEqual([true, []]);
    expect(Errors(schema, { ...document, users: [] })[0]).toBe(false);
  });

  test('is read as a valid document', async () => {
    const content = await fixture(`format-${version}.json`);
    const signal = new AbortController().signal;
    const read = await stageDocument(metadata.database.bulk, Readable.from([content]), {
      gzip: false,
      limit: 2 ** 30,
      signal,
      keep: false,
    });
    expect(read).toMatchObject({ valid: true, errors: [], sha256: digest });
  });
});

test('the schema that is kept is the one that is served: npm run generate:schema', async () => {
  const kept = await fixture(`format-${documentFormat.format_version}.schema.json`);
  expect(JSON.parse(kept.toString())).toEqual(JSON.parse(JSON.stringify(documentSchema)));
});
