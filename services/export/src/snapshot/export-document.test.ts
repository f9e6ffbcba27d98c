import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { readFile } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import pg from 'pg';
import { begun } from '@stowage/common/bytes/begun';
import { canonical } from '@stowage/tests/support/documents';
import { sectionNames } from '../document/records.ts';
import { sampleRecords } from '../document/test-documents.ts';
import type { Records } from '../document/test-documents.ts';
import { startTestMetadata } from '../document/test-metadata.ts';
import type { TestMetadata } from '../document/test-metadata.ts';
import { exportDocument } from './export-document.ts';
import type { DocumentFacts } from './export-document.ts';
import { putLive } from './test-live.ts';

const never = new AbortController().signal;
/** Others export from databases of their own on the same server. */
const ours = `application_name = 'stowage-export-bulk' and datname = current_database()`;
let metadata: TestMetadata;

beforeAll(async () => {
  metadata = await startTestMetadata();
});

/** Those that a test left unread would keep their connections. */
const streams: Readable[] = [];

afterEach(() => {
  for (const stream of streams.splice(0)) stream.destroy();
});

afterAll(() => metadata.close());

function begin(pool: pg.Pool = metadata.database.bulk): Readable {
  const stream = exportDocument(pool);
  stream.on('error', () => undefined);
  streams.push(stream);
  return stream;
}

async function exported(): Promise<string> {
  return Buffer.concat(await exportDocument(metadata.database.bulk).toArray()).toString();
}

/** More than sockets hold, so that an export of it goes on while nobody reads. */
function manyFiles(): Records {
  const { files, blobs, ...rest } = sampleRecords({ files: 60, directories: 10 });
  const copies = Array.from(
    { length: 250 },
    (_, copy) => (id: string) => `f${copy.toString(16).padStart(7, '0')}${id.slice(8)}`,
  );
  return {
    ...rest,
    replicas: [],
    files: copies.flatMap((as, n) =>
      files.map((file) => ({ ...file, id: as(file.id), blob_id: as(file.blob_id), name: `${n} ${file.name}` })),
    ),
    blobs: copies.flatMap((as) => blobs.map((blob) => ({ ...blob, id: as(blob.id) }))),
  };
}

/** How many snapshots PostgreSQL holds for documents. */
async function snapshots(): Promise<number> {
  const { rows } = await metadata.admin.query<{ count: number }>(
    `select count(*)::int as count from pg_stat_activity where ${ours} and backend_xmin is not null`,
  );
  return rows[0]?.count ?? 0;
}

async function until(isSo: () => Promise<boolean>): Promise<void> {
  while (!(await isSo())) await new Promise((resolve) => setTimeout(resolve, 20));
}

describe('an export', () => {
  test('of what the fixture of its format tells of is that fixture, byte by byte', async () => {
    const fixture = (await readFile(new URL('../document/fixtures/format-1.json', import.meta.url))).toString();
    const document = JSON.parse(fixture);
    await putLive(metadata.admin, document);
    await metadata.admin.query('update export.instance set id = $1', [document.instance_id]);
    const now = (await exported()).replace(/"exported_at":"[^"]+"/, `"exported_at":"${document.exported_at}"`);
    expect(now).toBe(fixture);
  });

  test('has records in canonical JSON, whatever the texts in them', async () => {
    const text = fc.string({ unit: 'binary', maxLength: 40 }).map((given) => given.replaceAll('\0', '').toWellFormed());
    await fc.assert(
      fc.asyncProperty(fc.array(text, { minLength: 1, maxLength: 50 }), async (texts) => {
        const records = sampleRecords({ files: 0, directories: 1 });
        const [root, child] = records.directories;
        if (!root || !child) throw new Error('no directories');
        const children = texts.map((name, n) => ({
          ...child,
          id: child.id.replace(/.{4}$/, n.toString(16).padStart(4, '0')),
          // Two of the same name may not be in one place.
          name: `${n} ${name}`,
        }));
        await putLive(metadata.admin, { ...records, directories: [root, ...children] });
        const lines = (await exported()).split('\n').filter((line) => line.startsWith('{"created_at"'));
        const names = lines.map((line) => {
          const record = JSON.parse(line.replace(/(,|\])+$/, ''));
          expect(line.replace(/(,|\],?)$/, '')).toBe(canonical(record));
          return record.name;
        });
        expect(names).toEqual(['', ...children.map(({ name }) => name)]);
      }),
      { numRuns: 8 },
    );
  });

  test('of nothing but the root is a document too', async () => {
    const records = sampleRecords({ files: 0, directories: 0 });
    await putLive(metadata.admin, { ...records, policies: [], backends: [] });
    const document = JSON.parse(await exported());
    expect(document.counts).toEqual({ directories: 1, files: 0, blobs: 0, replicas: 0, backends: 0, policies: 0 });
  });

  test('of many rows tells of each once, and of their digest before its end', async () => {
    const records = sampleRecords({ files: 500, directories: 300 });
    await putLive(metadata.admin, records);
    const told: DocumentFacts[] = [];
    const stream = exportDocument(metadata.database.bulk, (facts) => told.push(facts));
    const document = JSON.parse(Buffer.concat(await stream.toArray()).toString());
    for (const name of sectionNames) expect(document[name]).toEqual(records[name]);
    expect(told).toEqual([
      { counts: document.counts, sha256: document.sha256, exportedAt: new Date(document.exported_at) },
    ]);
  });

  test('whose reader leaves lets go of its snapshot', async () => {
    await putLive(metadata.admin, manyFiles());
    const stream = await begun(begin(), never);
    expect(await snapshots()).toBe(1);
    stream.destroy();
    await until(async () => (await snapshots()) === 0);
    expect(JSON.parse(await exported()).counts.files).toBe(15_000);
  }, 60_000);

  test('whose reader leaves while PostgreSQL says nothing lets go too', async () => {
    const waits = new pg.Pool({ connectionString: metadata.url, max: 1 });
    waits.on('connect', (client) => client.on('error', () => undefined));
    const locker = await metadata.admin.connect();
    await locker.query('begin');
    await locker.query('lock table catalog.blobs');
    const stream = begin(waits).resume();
    await until(
      async () =>
        (
          await locker.query(
            `select from pg_locks where not granted and database = (select oid from pg_database where datname = current_database())`,
          )
        ).rowCount === 1,
    );
    stream.destroy();
    await until(() => Promise.resolve(waits.totalCount === 0));
    await locker.query('rollback');
    locker.release();
    await waits.end();
  });

  test('whose connection breaks is broken, and never ends cleanly', async () => {
    await putLive(metadata.admin, manyFiles());
    const stream = await begun(begin(), never);
    await metadata.admin.query(`select pg_terminate_backend(pid) from pg_stat_activity where ${ours}`);
    await expect(stream.toArray()).rejects.toMatchObject({ code: 'unavailable' });
  }, 60_000);

  test('that can not begin is told before its first byte', async () => {
    const broken = Object.create(metadata.database.bulk, {
      connect: { value: () => Promise.reject(new Error('timeout exceeded when trying to connect')) },
    });
    await expect(begun(exportDocument(broken), never)).rejects.toMatchObject({ code: 'unavailable' });
  });

  test('whose reader left before it began is not begun', async () => {
    const left = AbortSignal.abort();
    await expect(begun(exportDocument(metadata.database.bulk), left)).rejects.toThrow();
    await until(async () => (await snapshots()) === 0);
  });
});
