import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { newId } from '@stowage/common/ids';
import { PassThrough } from 'node:stream';
import { as, bodyOf, refusalOf, startTestUploads, until, uploadOf } from './test-upload.ts';
import type { TestProcess, TestUploads } from './test-upload.ts';

let system: TestUploads;
let one: TestProcess;
let other: TestProcess;
beforeAll(async () => {
  system = await startTestUploads();
  const settings = { STOWAGE_UPLOAD_LEASE: '1500ms', STOWAGE_LEASE_WAIT: '1200ms' };
  one = await system.start(settings);
  other = await system.start(settings);
});
afterAll(() => system.close());
beforeEach(() => system.neighbours.reset());

const user = newId();

async function create(): Promise<string> {
  return uploadOf(await one.uploads.createUpload({ length: 100n, target: { filename: 'a' } }, as(user))).id;
}

async function reached(id: string, offset: bigint): Promise<void> {
  await until(async () => uploadOf(await one.uploads.getUpload({ id }, as(user))).offset === offset);
}

/** Begins an append that does not end by itself. */
async function hold(
  writer: TestProcess,
  id: string,
): Promise<{ body: PassThrough; refusal: Promise<{ code: string }> }> {
  const body = new PassThrough();
  const refusal = refusalOf(writer.append({ id, offset: 0n }, body, as(user)));
  body.write('abc');
  await reached(id, 3n);
  return { body, refusal };
}

describe('two writers', () => {
  test.each([
    ['in one process', () => one],
    ['in two processes', () => other],
  ])('%s: the newer stops the older, and goes on where that one ended', async (_where, newer) => {
    const id = await create();
    const { refusal } = await hold(one, id);
    const startedAt = performance.now();
    expect((await newer().append({ id, offset: 3n }, bodyOf('def'), as(user))).offset).toBe(6n);
    expect(performance.now() - startedAt).toBeLessThan(1_000);
    expect((await refusal).code).toBe('locked');
    expect(system.neighbours.staged.get(id)?.bytes.toString()).toBe('abcdef');
  });

  test('the offset is read without waiting for either', async () => {
    const id = await create();
    const { body, refusal } = await hold(one, id);
    const startedAt = performance.now();
    expect(uploadOf(await other.uploads.getUpload({ id }, as(user))).offset).toBe(3n);
    expect(performance.now() - startedAt).toBeLessThan(500);
    body.destroy();
    await refusal;
  });

  test('a store that does not let go holds the newer one up for a moment only', async () => {
    const id = await create();
    const { refusal } = await hold(one, id);
    const { promise, resolve } = Promise.withResolvers<void>();
    system.neighbours.stuck = promise;
    expect((await other.append({ id, offset: 3n }, bodyOf('def'), as(user))).offset).toBe(6n);
    expect((await refusal).code).toBe('locked');
    resolve();
  });

  test('of many at once every byte lands once, at one offset', async () => {
    const id = await create();
    const outcomes = await Promise.allSettled(
      Array.from({ length: 8 }, (_, index) =>
        (index % 2 ? one : other).append({ id, offset: 0n }, bodyOf(`${index}${index}`), as(user)),
      ),
    );
    const won = outcomes.filter(({ status }) => status === 'fulfilled');
    expect(won.length).toBeLessThanOrEqual(1);
    const content = system.neighbours.staged.get(id)?.bytes.toString() ?? '';
    expect(content).toMatch(/^((\d)\2)?$/);
    expect(
      await system.sql('select from upload.leases where upload_id = $1 and expires_at > now()', [id]),
    ).toHaveLength(0);
  });

  test('the lease of a dead process is waited for, then taken over with a higher fence', async () => {
    const id = await create();
    await system.sql(
      `insert into upload.leases (upload_id, fence, expires_at) values ($1, nextval('upload.fences'), now() + interval '2 seconds')`,
      [id],
    );
    expect(await refusalOf(one.append({ id, offset: 0n }, bodyOf('x'), as(user)))).toMatchObject({
      code: 'locked',
      members: { retry_after: 1 },
    });
    const appended = await until(async () => {
      const outcome = await one.append({ id, offset: 0n }, bodyOf('x'), as(user)).catch(() => null);
      return outcome ?? undefined;
    });
    expect(appended.offset).toBe(1n);
  });

  test('a writer whose lease was taken over stops by itself', async () => {
    const id = await create();
    const { refusal } = await hold(one, id);
    await system.sql(`update upload.leases set fence = nextval('upload.fences') where upload_id = $1`, [id]);
    expect((await refusal).code).toBe('locked');
  });

  test('a writer outlives the time of its lease, for it is renewed', async () => {
    const id = await create();
    const { body, refusal } = await hold(one, id);
    const [first] = await system.sql<{ expires_at: Date }>(
      'select expires_at from upload.leases where upload_id = $1',
      [id],
    );
    await until(async () => {
      const rows = await system.sql(
        "select from upload.leases where upload_id = $1 and expires_at > $2::timestamptz + interval '1500 ms'",
        [id, first?.expires_at],
      );
      return rows.length === 1;
    });
    body.destroy();
    await refusal;
  });
});
