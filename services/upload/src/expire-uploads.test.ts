import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { newId } from '@stowage/common/ids';
import type { JsonObject } from '@stowage/common/jobs/job';
import { as, bodyOf, refusalOf, startTestUploads, until, uploadOf } from './test-upload.ts';
import type { TestProcess, TestUploads } from './test-upload.ts';

let system: TestUploads;
let service: TestProcess;
beforeAll(async () => {
  system = await startTestUploads();
  service = await system.start();
});
afterAll(() => system.close());
beforeEach(async () => {
  system.neighbours.reset();
  await system.sql('truncate upload.uploads, upload.leases');
});

const user = newId();

async function create(content = 'hello'): Promise<string> {
  const request = { length: BigInt(content.length), target: { filename: newId() } };
  const { id } = uploadOf(await service.uploads.createUpload(request, as(user)));
  if (content) await service.append({ id, offset: 0n }, bodyOf(content), as(user));
  return id;
}

async function pass(id: string): Promise<void> {
  await system.sql(`update upload.uploads set expires_at = now() - interval '1 second' where id = $1`, [id]);
}

/** Runs the job as the service's own worker does. */
async function expireAll(): Promise<JsonObject> {
  const id = newId();
  await system.sql(
    `insert into jobs.jobs (id, kind, run_after) values ($1, 'expire_uploads', now() - interval '1 second')`,
    [id],
  );
  await system.sql(`select pg_notify('stowage_jobs', '')`);
  return until(async () => {
    const [job] = await system.sql<{ state: string; result: JsonObject; error_detail: string }>(
      'select state, result, error_detail from jobs.jobs where id = $1',
      [id],
    );
    if (job?.error_detail) throw new Error(job.error_detail);
    return job?.state === 'succeeded' ? job.result : undefined;
  });
}

async function stateOf(id: string): Promise<string | undefined> {
  const [row] = await system.sql<{ state: string }>('select state from upload.uploads where id = $1', [id]);
  return row?.state;
}

describe('expiry', () => {
  test('frees what nobody went on with, answers gone for a day, and forgets it then', async () => {
    const [old, young] = [await create(), await create()];
    await pass(old);
    expect(await expireAll()).toMatchObject({ expired: 1, freed: 1, failures: 0 });
    expect([...system.neighbours.staged.keys()]).toEqual([young]);
    expect((await refusalOf(service.uploads.getUpload({ id: old }, as(user)))).code).toBe('gone');
    await pass(old);
    expect(await expireAll()).toMatchObject({ expired: 0, freed: 0, removed: 1 });
    expect((await refusalOf(service.uploads.getUpload({ id: old }, as(user)))).code).toBe('not_found');
    expect(uploadOf(await service.uploads.getUpload({ id: young }, as(user))).offset).toBe(5n);
  });

  test('leaves alone what is being written, and takes it once the writer is dead', async () => {
    const id = await create();
    await pass(id);
    await system.sql(`insert into upload.leases values ($1, nextval('upload.fences'), now() + interval '1 hour')`, [
      id,
    ]);
    expect(await expireAll()).toMatchObject({ expired: 0, leases: 0 });
    await system.sql(`update upload.leases set expires_at = now() - interval '2 minutes'`);
    expect(await expireAll()).toMatchObject({ expired: 1, freed: 1, leases: 1 });
  });

  test('frees content that was made without an answer', async () => {
    system.neighbours.fault = { step: 'createStaged', when: 'after' };
    await refusalOf(create());
    expect(system.neighbours.staged.size).toBe(1);
    expect(await expireAll()).toMatchObject({ freed: 1 });
    expect(system.neighbours.staged.size).toBe(0);
  });

  test('a store that can not be asked is asked once a run, and freed in a later one', async () => {
    const ids = [await create(), await create(), await create()];
    await Promise.all(ids.map(pass));
    system.neighbours.fault = { step: 'discardStaged', when: 'before' };
    expect(await expireAll()).toMatchObject({ expired: 3, freed: 0, failures: 3 });
    expect(system.neighbours.count('discardStaged')).toBe(1);
    expect(await expireAll()).toMatchObject({ expired: 0, freed: 3, failures: 0 });
    expect(system.neighbours.staged.size).toBe(0);
  });

  test('more than a batch is done in one run', async () => {
    await system.sql(
      `insert into upload.uploads (id, user_id, file_id, blob_id, backend_id, expires_at)
       select gen_random_uuid(), $1, gen_random_uuid(), gen_random_uuid(), $2, now() - interval '1 second' from generate_series(1, 1201)`,
      [user, system.neighbours.backendId],
    );
    expect(await expireAll()).toMatchObject({ expired: 1201, freed: 1201 });
  });

  test('drops finalized uploads that are past their time, and never their files', async () => {
    const id = await create();
    await service.uploads.finalizeUpload({ id }, as(user));
    await pass(id);
    expect(await expireAll()).toMatchObject({ expired: 0, removed: 1 });
    expect(await stateOf(id)).toBeUndefined();
    expect(system.neighbours.files.size).toBe(1);
    expect(system.neighbours.count('abandonBlob')).toBe(0);
  });
});

describe('expiry of an upload that was being finalized', () => {
  async function finalizingAfter(fault: {
    step: 'sealBlob' | 'commitFile';
    when: 'before' | 'after';
  }): Promise<string> {
    const id = await create();
    system.neighbours.fault = fault;
    await refusalOf(service.uploads.finalizeUpload({ id }, as(user)));
    expect(await stateOf(id)).toBe('finalizing');
    return id;
  }

  test.each([
    { step: 'sealBlob', when: 'before' },
    { step: 'sealBlob', when: 'after' },
    { step: 'commitFile', when: 'before' },
  ] as const)('$when $step: its blob is given up, and can not be committed later', async (fault) => {
    const id = await finalizingAfter(fault);
    await pass(id);
    expect(await expireAll()).toMatchObject({ expired: 1, freed: 1, finalized: 0 });
    expect(system.neighbours.abandoned.size).toBe(1);
    expect(system.neighbours.staged.size).toBe(0);
    expect((await refusalOf(service.uploads.finalizeUpload({ id }, as(user)))).code).toBe('gone');
    expect(system.neighbours.files.size).toBe(0);
  });

  test('after the commit: it became a file, and is known as that', async () => {
    const id = await finalizingAfter({ step: 'commitFile', when: 'after' });
    await pass(id);
    expect(await expireAll()).toMatchObject({ expired: 1, freed: 0, finalized: 1 });
    expect(system.neighbours.abandoned.size).toBe(0);
    expect(await service.uploads.finalizeUpload({ id }, as(user))).toMatchObject({
      created: false,
      file: { id: expect.any(String) },
    });
  });

  test('stopped between the decision and catalog: the next run goes on', async () => {
    const id = await finalizingAfter({ step: 'commitFile', when: 'before' });
    await pass(id);
    system.neighbours.fault = { step: 'abandonBlob', when: 'after' };
    expect(await expireAll()).toMatchObject({ expired: 1, failures: 1 });
    expect(await stateOf(id)).toBe('abandoned');
    expect((await refusalOf(service.uploads.getUpload({ id }, as(user)))).code).toBe('gone');
    expect(await expireAll()).toMatchObject({ expired: 0, freed: 1 });
    expect(await stateOf(id)).toBe('ended');
  });

  test('of finalize and expiry at the same moment one wins whole', async () => {
    for (let round = 0; round < 20; round += 1) {
      system.neighbours.reset();
      const id = await finalizingAfter({ step: 'commitFile', when: 'before' });
      await pass(id);
      const [finalized] = await Promise.all([
        service.uploads.finalizeUpload({ id }, as(user)).catch((error: unknown) => error),
        expireAll(),
      ]);
      const won = system.neighbours.files.size === 1;
      expect(system.neighbours.abandoned.size).toBe(won ? 0 : 1);
      expect(finalized).toMatchObject(won ? { created: true } : { code: 'gone' });
      expect(await stateOf(id)).toBe(won ? 'finalized' : 'ended');
    }
  });
});
