import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { rootDirectoryId } from '@stowage/common/ids';
import { exportDocument } from '../snapshot/export-document.ts';
import { stageDocument } from './stage-document.ts';
import { documentOf, sampleRecords, testId } from './test-documents.ts';
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

test('whatever is wrong, the answer does not depend on how the bytes are cut', async () => {
  const { bulk } = metadata.database;
  const sound = documentOf(sampleRecords({ directories: 2, files: 2 }));
  const read = (chunks: Buffer[]): Promise<unknown> =>
    stageDocument(bulk, Readable.from(chunks), { gzip: false, limit, signal, keep: false }).catch(String);
  await fc.assert(
    fc.asyncProperty(
      fc.nat(sound.length),
      fc.constantFrom('', '"', '{', '}', ']', ',', '\\', '0', ' ', 'ö', '\ud83e\uddc0'),
      fc.array(fc.nat(sound.length), { minLength: 1, maxLength: 9 }),
      async (place, typed, places) => {
        const bytes = Buffer.from(sound.slice(0, place) + typed + sound.slice(place + 1));
        const cuts = [0, ...places.toSorted((one, other) => one - other), bytes.length];
        const chunks = cuts.slice(1).map((end, index) => bytes.subarray(cuts[index], end));
        expect(await read(chunks)).toEqual(await read([bytes]));
      },
    ),
    { numRuns: 40 },
  );
});

test('directories that lie deeper than is walked are told of, and are no cycle', async () => {
  const { bulk } = metadata.database;
  const records = sampleRecords({ directories: 1_100, files: 0 });
  for (const [index, directory] of records.directories.entries()) {
    if (index > 0) directory.parent_id = index === 1 ? rootDirectoryId : testId(1, index - 2);
  }
  const body = Readable.from([Buffer.from(documentOf(records))]);
  const staged = await stageDocument(bulk, body, { gzip: false, limit, signal, keep: false });
  expect(staged).toMatchObject({ valid: true, number: null });
  expect(staged.warnings).toContainEqual(expect.objectContaining({ code: 'too_deep', pointer: '/directories/1024' }));
});
