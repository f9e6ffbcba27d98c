import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import { exportDocument } from '../snapshot/export-document.ts';
import { stageDocument } from './stage-document.ts';
import { documentOf, sampleRecords } from './test-documents.ts';
import { startTestMetadata } from './test-metadata.ts';
import type { TestMetadata } from './test-metadata.ts';

let metadata: TestMetadata;

beforeAll(async () => {
  metadata = await startTestMetadata();
});
afterAll(() => metadata.close());

const limit = 2 ** 33;
const { signal } = new AbortController();

test('what was staged holds each record', async () => {
  const { bulk } = metadata.database;
  const body = documentOf(sampleRecords());
  const staged = await stageDocument(bulk, Readable.from([gzipSync(body)]), { gzip: true, limit, signal, keep: true });
  expect(staged).toMatchObject({ valid: true, errors: [], warnings: [{ code: 'other_installation' }] });
  const { rows } = await bulk.query(
    `select kind, count(*)::int from export.staged_${staged.number}_nodes group by kind`,
  );
  expect(new Map(rows.map((row) => [row.kind, row.count]))).toEqual(
    new Map([
      ['directory', 5],
      ['file', 6],
    ]),
  );
});

test('an export of an empty installation tells what it lacks, and no more', async () => {
  const { bulk } = metadata.database;
  const body = exportDocument(bulk);
  const staged = await stageDocument(bulk, body, { gzip: false, limit, signal, keep: true });
  expect(staged.errors.map(({ code }) => code)).toEqual(['default_backend', 'default_policy']);
});
