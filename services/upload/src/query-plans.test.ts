import { afterAll, beforeAll, expect, test } from '@jest/globals';
import pg from 'pg';
import { newId } from '@stowage/common/ids';
import { faultsOf, statementsOf } from '@stowage/tests/support/query-plans';
import type { Statement } from '@stowage/tests/support/query-plans';
import { as, bodyOf, startTestUploads, uploadOf } from './test-upload.ts';
import type { TestProcess, TestUploads } from './test-upload.ts';

const big = ['uploads', 'leases', 'jobs'];
const user = newId();

let system: TestUploads;
let one: TestProcess;
let admin: pg.Pool;
beforeAll(async () => {
  system = await startTestUploads();
  one = await system.start();
  admin = new pg.Pool({ connectionString: system.url, max: 2 });
  admin.on('error', () => undefined);
  // A few of this user's, as many users have open ones.
  const id = "('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid";
  await admin.query(
    `insert into upload.uploads (id, user_id, state, length, file_id, blob_id, backend_id, expires_at)
     select ${id}, case when n % 1000 = 0 then $1 else ${id} end, case when n % 4 = 0 then 'open' else 'ended' end, 12,
       ${id}, ${id}, case when n % 4 = 0 then $2::uuid end, now() + interval '1 day' from generate_series(1, 100000) n`,
    [user, system.neighbours.backendId],
  );
  await admin.query(
    `insert into upload.leases (upload_id, fence, expires_at)
     select ${id}, n, now() + interval '1 hour' from generate_series(1, 100000) n`,
  );
  await admin.query('vacuum analyze');
}, 60_000);
afterAll(async () => {
  await admin.end();
  await system.close();
});

async function faultsIn(statements: readonly Statement[]): Promise<string[]> {
  const found = await Promise.all(statements.map((statement) => faultsOf(admin, statement, big)));
  return found.flat();
}

test('an upload is made, read, written and finalized without looking at the other 100,000', async () => {
  let id = '';
  const made = await statementsOf(async () => {
    id = uploadOf(await one.uploads.createUpload({ length: 12n, target: { filename: 'a.txt' } }, as(user))).id;
  });
  const read = await statementsOf(() => one.uploads.getUpload({ id }, as(user)));
  const written = await statementsOf(() => one.append({ id, offset: 0n }, bodyOf('hello, world'), as(user)));
  const finalized = await statementsOf(() => one.uploads.finalizeUpload({ id, target: {} }, as(user)));
  for (const statements of [made, read, written, finalized]) {
    expect(statements.length).toBeGreaterThan(0);
    expect(await faultsIn(statements)).toEqual([]);
  }
});

test('an upload is given up without looking at the other 100,000', async () => {
  const { id } = uploadOf(await one.uploads.createUpload({ length: 12n, target: { filename: 'b.txt' } }, as(user)));
  const ended = await statementsOf(() => one.uploads.terminateUpload({ id }, as(user)));
  expect(ended.length).toBeGreaterThan(0);
  expect(await faultsIn(ended)).toEqual([]);
});
