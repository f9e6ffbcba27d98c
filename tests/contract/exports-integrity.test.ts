import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { makeBackend } from '@stowage/tests/support/backends';
import { expectStatus, logIn, logInAs } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { startOwnSystem } from '@stowage/tests/support/own-system';
import type { OwnSystem } from '@stowage/tests/support/own-system';
import { expectProblem } from '@stowage/tests/support/problems';
import { uniqueName } from '@stowage/tests/support/system';

const route = '/api/exports/metadata/integrity';
let system: OwnSystem;
let admin: Client;

beforeAll(async () => {
  system = await startOwnSystem(mode());
  admin = await logIn(system.url);
});
afterAll(() => system.close());

async function look(): Promise<Json> {
  return expectStatus(await admin.get(route), 200).json;
}

/** What people do all day, until told to stop; gives how many rounds that were. */
async function work(client: Client, goesOn: () => boolean): Promise<number> {
  let rounds = 0;
  for (; goesOn(); rounds += 1) {
    const directory = await client.makeDirectory(uniqueName('directory'));
    const inner = await client.makeDirectory('inner', directory['id']);
    const [file] = await Promise.all([
      client.putFile('file', Buffer.alloc(rounds * 1_000, 'x'), { directory: inner['id'] }),
      client.putFile('other', 'short', { directory: directory['id'] }),
      client.tus('POST', '/files', { 'upload-length': '5' }),
    ]);
    expectStatus(await client.post(`/api/files/${file['id']}/move`, { directory_id: directory['id'] }), 200);
    expectStatus(await client.post(`/api/directories/${inner['id']}/rename`, { name: uniqueName() }), 200);
    expectStatus(await client.delete(`/api/files/${file['id']}`), 200);
    if (rounds % 2 === 0) expectStatus(await client.delete(`/api/directories/${directory['id']}`), 200);
  }
  return rounds;
}

describe('the look at all metadata', () => {
  test('is whole while people work, content is copied and the recycle bin is emptied', async () => {
    const backend = await makeBackend(admin);
    const { items } = expectStatus(await admin.get('/api/policies/placement'), 200).json;
    const backends = [...items[0].backends, backend['id']];
    expectStatus(await admin.call('PUT', '/api/policies/placement/default', { body: { backends, replicas: 2 } }), 200);
    let looks = 0;
    const workers = Promise.all([work(admin, () => looks < 10), work(admin, () => looks < 10)]);
    for (; looks < 10; looks += 1) {
      expect(await look()).toMatchObject({ ok: true, problems: [], problem_count: 0 });
      expectStatus(await admin.delete('/api/files/recycle-bin'), 204);
    }
    for (const rounds of await workers) expect(rounds).toBeGreaterThan(0);
    const { checked_at: checkedAt, ...rest } = await look();
    expect(checkedAt).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    expect(rest).toEqual({
      ok: true,
      counts: {
        directories: expect.any(Number),
        files: expect.any(Number),
        blobs: expect.any(Number),
        replicas: expect.any(Number),
        backends: 2,
        policies: expect.any(Number),
      },
      problems: [],
      problem_count: 0,
    });
  });

  test('tells what is wrong, of which record, and that nothing of it is to be kept', async () => {
    const file = await admin.putFile(uniqueName(), 'content');
    const database = new pg.Client({ connectionString: system.databaseUrl });
    await database.connect();
    await database.query(`update catalog.nodes set size = 8 where id = $1`, [file['id']]);
    try {
      const answer = expectStatus(await admin.get(route), 200);
      expect(answer.json).toMatchObject({
        ok: false,
        problems: [{ kind: 'file_size_differs', id: file['id'], detail: expect.stringContaining(file['name']) }],
        problem_count: 1,
      });
      expect(answer.headers.get('cache-control')).toContain('no-store');
    } finally {
      await database.query(`update catalog.nodes set size = 7 where id = $1`, [file['id']]);
      await database.end();
    }
  });

  test('is for admins, also while the service is read-only', async () => {
    const editor = await logInAs(admin, 'editor', uniqueName('editor'));
    expectProblem(await editor.get(route), 403, 'forbidden');
    const setMode = async (to: string): Promise<void> => {
      expectStatus(await admin.call('PUT', '/api/system/mode', { body: { mode: to } }), 200);
    };
    await setMode('read_only');
    try {
      expect(await look()).toMatchObject({ ok: true });
    } finally {
      await setMode('normal');
    }
  });
});
