import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { buffer } from 'node:stream/consumers';
import { gunzipSync } from 'node:zlib';
import { newId } from '@stowage/common/ids';
import { backgroundContext } from '@stowage/common/rpc/context';
import { documentDigest } from '@stowage/tests/support/documents';
import { sampleRecords } from '../document/test-documents.ts';
import { startTestMetadata } from '../document/test-metadata.ts';
import type { TestMetadata } from '../document/test-metadata.ts';
import { putLive } from '../snapshot/test-live.ts';
import { dropBeforeImport, forgetBeforeImport, keepBeforeImport, markKept } from './keep-before-import.ts';
import type { KeptStorage } from './kept-storage.ts';
import { ExportReader } from './read-export.ts';

const never = new AbortController().signal;
const context = backgroundContext(never);
const absent = (): never => {
  throw new Error('no backend is asked');
};
const noBackends: KeptStorage = { kept: { deleteKept: absent }, write: absent, read: absent };
let metadata: TestMetadata;
let reader: ExportReader;

beforeAll(async () => {
  metadata = await startTestMetadata();
  await putLive(metadata.admin, sampleRecords({ files: 300, directories: 20 }));
});

afterAll(() => metadata.close());

beforeEach(async () => {
  await metadata.admin.query('truncate export.exports cascade');
  reader = new ExportReader(metadata.database.bulk, noBackends);
});

/** As an import does it. */
async function kept(): Promise<string> {
  const { bulk } = metadata.database;
  const { exportId } = await keepBeforeImport(bulk, never);
  const client = await bulk.connect();
  try {
    await client.query('begin');
    await markKept(client, exportId);
    await client.query('commit');
  } finally {
    client.release();
  }
  return exportId;
}

async function ids(): Promise<string[]> {
  const { rows } = await metadata.admin.query<{ id: string }>('select id from export.exports order by id');
  return rows.map(({ id }) => id);
}

async function pieces(): Promise<number> {
  const { rows } = await metadata.admin.query<{ count: number }>('select count(*)::int from export.export_pieces');
  return rows[0]?.count ?? 0;
}

describe('the state before an import', () => {
  test('is kept in the database and given back, plain and compressed', async () => {
    const exportId = await kept();
    const plain = await buffer(await reader.read({ exportId, gzip: false }, context));
    const document = JSON.parse(plain.toString());
    expect(document).toMatchObject({ counts: { files: 300 }, sha256: documentDigest(document) });
    const gzip = await buffer(await reader.read({ exportId, gzip: true }, context));
    expect(gunzipSync(gzip).equals(plain)).toBe(true);
  });

  test('is not given before the import is committed, and not at all where it never was', async () => {
    const { exportId } = await keepBeforeImport(metadata.database.bulk, never);
    await expect(reader.read({ exportId, gzip: false }, context)).rejects.toMatchObject({ code: 'state_conflict' });
    await dropBeforeImport(metadata.database.bulk, exportId);
    await expect(reader.read({ exportId, gzip: false }, context)).rejects.toMatchObject({ code: 'not_found' });
    expect(await pieces()).toBe(0);
  });

  test('that is kept is not dropped by whoever does not know that', async () => {
    const exportId = await kept();
    await dropBeforeImport(metadata.database.bulk, exportId);
    expect(await ids()).toEqual([exportId]);
  });

  test('is kept of the newest three imports, and what a crash left goes later', async () => {
    const all: string[] = [];
    for (let round = 0; round < 5; round += 1) all.push(await kept());
    const [old, young] = [newId(), newId()];
    await metadata.admin.query(
      `insert into export.exports (id, reason, created_at) values ($1, 'before_import', now() - interval '1 day'), ($2, 'before_import', now())`,
      [old, young],
    );
    await forgetBeforeImport(metadata.database.bulk);
    expect(await ids()).toEqual([...all.slice(-3), young]);
  });

  test('is nothing where the import was given up while it was written', async () => {
    await expect(keepBeforeImport(metadata.database.bulk, AbortSignal.abort())).rejects.toThrow();
    expect(await ids()).toEqual([]);
  });

  test('breaks off where a piece is gone, and is never shorter', async () => {
    const exportId = await kept();
    await metadata.admin.query('delete from export.export_pieces');
    await expect(reader.read({ exportId, gzip: true }, context)).rejects.toMatchObject({ code: 'unavailable' });
  });
});

test('no more than two snapshots are taken at a time; the next one may as soon as one is over', async () => {
  const now = { exportId: '', gzip: false };
  const [one, two] = [await reader.read(now, context), await reader.read(now, context)];
  await expect(reader.read(now, context)).rejects.toMatchObject({ code: 'unavailable' });
  one.destroy();
  await new Promise((resolve) => one.once('close', resolve));
  await buffer(await reader.read(now, context));
  two.destroy();
});
