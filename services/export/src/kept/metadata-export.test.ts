import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { gunzipSync } from 'node:zlib';
import { AppError, unavailable } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import type { ClaimedJob, JsonObject } from '@stowage/common/jobs/job';
import { backgroundContext } from '@stowage/common/rpc/context';
import { createLogger } from '@stowage/common/runtime/logger';
import { sampleRecords } from '../document/test-documents.ts';
import { startTestMetadata } from '../document/test-metadata.ts';
import type { TestMetadata } from '../document/test-metadata.ts';
import { putLive } from '../snapshot/test-live.ts';
import type { KeptStorage } from './kept-storage.ts';
import { metadataExport } from './metadata-export.ts';
import { ExportReader } from './read-export.ts';

const keep = 2;
const never = new AbortController().signal;
const context = backgroundContext(never);
const logger = createLogger('test', 'silent');
let metadata: TestMetadata;
/** What lies on backends, by key. */
let objects: Map<string, Buffer>;

beforeAll(async () => {
  metadata = await startTestMetadata();
});

afterAll(() => metadata.close());

beforeEach(async () => {
  objects = new Map();
  await metadata.admin.query('truncate export.exports, jobs.jobs cascade');
  await putLive(metadata.admin, sampleRecords());
});

type Step = 'write' | 'written' | 'read' | 'delete' | 'deleted';

/** Backends in memory; `fail` throws at the steps that are to fail. */
function storage(fail: (step: Step) => void = () => undefined): KeptStorage {
  return {
    kept: {
      deleteKept: async ({ key = '' }) => {
        fail('delete');
        objects.delete(key);
        fail('deleted');
        return { $typeName: 'stowage.backend_registry.v1.DeleteKeptResponse' };
      },
    },
    write: async ({ key = '' }, body) => {
      fail('write');
      objects.set(key, await buffer(body));
      fail('written');
      return { $typeName: 'stowage.backend_registry.v1.WriteKeptResponse' };
    },
    read: async ({ key = '' }) => {
      fail('read');
      const found = objects.get(key);
      if (!found) throw new AppError('not_found', 'not there');
      return Readable.from([found]);
    },
  };
}

function run(kept: KeptStorage, job = newJob(), signal = never): Promise<JsonObject> {
  const { bulk } = metadata.database;
  return metadataExport({ bulk, storage: kept, backend: '', keep, logger })(job, { signal, progress: () => undefined });
}

function newJob(): ClaimedJob {
  return {
    id: newId(),
    kind: 'metadata_export',
    params: {},
    attempt: 1,
    maxAttempts: 5,
    fence: '1',
    traceparent: null,
  };
}

async function rows(): Promise<{ key: string; state: string }[]> {
  const found = await metadata.admin.query<{ key: string; state: string }>(
    'select key, state from export.exports order by id',
  );
  return found.rows;
}

/** What is noted and what lies there is the same: whole documents, no more than are kept. */
async function expectTidy(count: number): Promise<void> {
  const noted = await rows();
  expect(noted.map(({ state }) => state)).toEqual(Array.from({ length: count }, () => 'kept'));
  expect([...objects.keys()].sort()).toEqual(noted.map(({ key }) => key).sort());
  for (const object of objects.values()) expect(JSON.parse(gunzipSync(object).toString()).counts.files).toBe(6);
}

describe('the job metadata_export', () => {
  test('keeps the newest, and no more', async () => {
    for (let round = 0; round < keep + 2; round += 1) await run(storage());
    await expectTidy(keep);
  });

  test.each<Step>(['write', 'written', 'read', 'delete', 'deleted'])(
    'leaves nothing behind for good when it is cut off at the step "%s"',
    async (step) => {
      for (let round = 0; round < keep; round += 1) await run(storage());
      const job = newJob();
      const cutOff = new AbortController();
      const failing = storage((at) => {
        if (at !== step) return;
        cutOff.abort(unavailable('cut off'));
        throw unavailable('cut off');
      });
      await expect(run(failing, job, cutOff.signal)).rejects.toThrow();
      await run(storage(), job);
      await expectTidy(keep);
    },
  );

  test('keeps nothing that is another one when it is read back', async () => {
    const kept = storage();
    const lying: KeptStorage = { ...kept, read: async () => Readable.from([Buffer.from('another one')]) };
    await expect(run(lying)).rejects.toMatchObject({ code: 'checksum_mismatch' });
    expect((await rows()).map(({ state }) => state)).toEqual(['writing']);
    await run(kept);
    await expectTidy(1);
  });

  test('takes nothing from a job that still runs', async () => {
    const other = newId();
    await metadata.admin.query(
      `insert into jobs.jobs (id, kind, state, lease_holder, lease_until) values ($1, 'metadata_export', 'running', $2, now())`,
      [other, newId()],
    );
    const [backend] = sampleRecords().backends;
    await metadata.admin.query(
      `insert into export.exports (id, reason, backend_id, key, job_id) values ($1, 'scheduled', $2, 'exports/other', $3)`,
      [newId(), backend?.id, other],
    );
    await run(storage());
    expect((await rows()).map(({ state }) => state)).toEqual(['writing', 'kept']);
  });

  test('an old export that can not be removed keeps nothing from being kept', async () => {
    for (let round = 0; round < keep; round += 1) await run(storage());
    const stuck = storage((step) => {
      if (step === 'delete') throw unavailable('not now');
    });
    expect(await run(stuck)).toMatchObject({ removed: 0 });
    expect(await run(storage())).toMatchObject({ removed: 2 });
    await expectTidy(keep);
  });

  test('what it kept is read back, plain and compressed', async () => {
    const { export_id: exportId } = await run(storage());
    const reader = new ExportReader(metadata.database.bulk, storage());
    const plain = await buffer(await reader.read({ exportId: String(exportId), gzip: false }, context));
    const gzip = await buffer(await reader.read({ exportId: String(exportId), gzip: true }, context));
    expect(gunzipSync(gzip).equals(plain)).toBe(true);
  });
});
