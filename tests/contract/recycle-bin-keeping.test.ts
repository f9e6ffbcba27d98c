import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { expectStatus, logIn, sha256, until } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { blobFileOf, findBlobFile } from '@stowage/tests/support/blobs-on-disk';
import { expectProblem } from '@stowage/tests/support/problems';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';
import { at, readFile, readPages } from '@stowage/tests/support/tree';
import { contentOf } from '@stowage/tests/support/uploads';

const bin = '/api/files/recycle-bin';
const hour = 3_600_000;

async function recycledFile(client: Client, content = uniqueName('content')): Promise<Json> {
  const made = await client.putFile(uniqueName('file'), content);
  return expectStatus(await client.delete(`/api/files/${made['id']}`), 200).json;
}

async function recycledDirectory(client: Client): Promise<Json> {
  const made = await client.makeDirectory(uniqueName('directory'));
  return expectStatus(await client.delete(`/api/directories/${made['id']}`), 200).json;
}

/** Lets the workers look at once for what is due; else they look every few seconds. */
async function ring(client: Client): Promise<void> {
  expectStatus(await client.post('/api/jobs/run-pending', { wait_seconds: 1 }), 200);
}

/** Waits until a whole job of that kind has run from now on. */
async function afterNextRun(client: Client, kind: string): Promise<void> {
  const start = new Date().toISOString();
  await until(async () => {
    await ring(client);
    const { json } = expectStatus(await client.get(`/api/jobs?kind=${kind}&state=succeeded&limit=1`), 200);
    return json['items'].some((job: Json) => job['started_at'] > start);
  });
}

const idsOf = (items: readonly Json[]): string[] => items.map((item) => item['id']);

describe('with default times', () => {
  let system: System;
  let client: Client;

  beforeAll(async () => {
    system = await startSystem(mode(), { STOWAGE_JOB_INTERVAL: '1s' });
    client = await logIn(system.url);
  });

  afterAll(async () => system.close());

  test('the bin is empty at first', async () => {
    expect(expectStatus(await client.get(bin), 200).json).toEqual({ items: [], next_cursor: null });
  });

  test('the bin lists directories and files, the newest deletion first, page by page', async () => {
    const entries: Json[] = [];
    for (let n = 0; n < 7; n += 1)
      entries.push(n % 2 === 0 ? await recycledFile(client) : await recycledDirectory(client));
    const newestFirst = entries.toReversed();
    for (const limit of [1, 2, 3, 7, 100]) {
      const { items, pages } = await readPages(client, `${bin}?limit=${limit}`);
      expect(items).toEqual(newestFirst);
      expect(pages).toHaveLength(Math.ceil(entries.length / limit));
    }
    const [oldest] = entries;
    expectStatus(await client.post(`/api/files/${oldest?.['id']}/restore`), 200);
    expectStatus(await client.delete(`/api/files/${oldest?.['id']}`), 200);
    expect(idsOf((await readPages(client, bin)).items)).toEqual(
      idsOf([...entries.slice(1), ...entries.slice(0, 1)].toReversed()),
    );
  });

  test('what comes and goes between two pages neither hides nor repeats the others', async () => {
    const kept: string[] = [];
    const passing: Json[] = [];
    for (let n = 0; n < 10; n += 1) {
      kept.push((await recycledFile(client))['id']);
      passing.push(await recycledFile(client));
    }
    const { items } = await readPages(client, `${bin}?limit=4`, async () => {
      await recycledFile(client);
      for (const doomed of [passing.shift(), passing.pop()]) {
        if (doomed) expectStatus(await client.post(`/api/files/${doomed['id']}/restore`), 200);
      }
    });
    const ids = idsOf(items);
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids.filter((id) => kept.includes(id))).toEqual(kept.toReversed());
  });

  test('a cursor of another list is refused', async () => {
    const cursor = Buffer.from(
      JSON.stringify(['name asc', 'file', 'a', at((await readPages(client, bin)).items, 0)['id']]),
    );
    expectProblem(await client.get(`${bin}?cursor=${cursor.toString('base64url')}`), 400, 'validation_failed');
  });

  test('the job that empties the bin in time leaves what is not due', async () => {
    const entry = await recycledFile(client);
    const blob = await blobFileOf(system.dataDir, entry['sha256']);
    await afterNextRun(client, 'purge_recycle_bin');
    const { placement: _placement, ...now } = await readFile(client, entry['id']);
    expect(now).toEqual(entry);
    expect(await findBlobFile(system.dataDir, entry['sha256'])).toBe(blob);
  });

  test('content of a file that was removed for good stays on the backend for a week', async () => {
    const entry = await recycledFile(client);
    expectStatus(await client.delete(`/api/files/${entry['id']}?permanent=true`), 204);
    const { json } = expectStatus(await client.get('/api/jobs?kind=remove_blob&limit=1'), 200);
    const job = at<Json>(json['items'], 0);
    expect(job['state']).toBe('pending');
    const wait = Date.parse(job['run_after']) - Date.now();
    expect(wait).toBeGreaterThan(7 * 24 * hour - hour);
    expect(wait).toBeLessThan(7 * 24 * hour + hour);
    expectStatus(await client.post('/api/jobs/run-pending', { kinds: ['remove_blob'], wait_seconds: 5 }), 200);
    expect(await findBlobFile(system.dataDir, entry['sha256'])).not.toBeNull();
  });

  test('an admin empties the bin: 204, and nothing that is not in it is touched', async () => {
    const kept = await client.putFile(uniqueName('kept'), 'kept');
    const top = await client.makeDirectory(uniqueName('top'));
    const below = await client.putFile('below', 'below', { directory: top['id'] });
    const nested = await client.putFile('nested', 'nested', { directory: top['id'] });
    expectStatus(await client.delete(`/api/files/${nested['id']}`), 200);
    expectStatus(await client.delete(`/api/directories/${top['id']}`), 200);
    const restored = await recycledFile(client, 'restored');
    expectStatus(await client.post(`/api/files/${restored['id']}/restore`), 200);
    const answer = expectStatus(await client.delete(bin), 204);
    expect(answer.bytes).toHaveLength(0);
    expect(expectStatus(await client.get(bin), 200).json).toEqual({ items: [], next_cursor: null });
    for (const gone of [below, nested]) expectProblem(await client.get(`/api/files/${gone['id']}`), 404, 'not_found');
    expectProblem(await client.get(`/api/directories/${top['id']}`), 404, 'not_found');
    await afterNextRun(client, 'purge_recycle_bin');
    expect((await contentOf(client, kept['id'])).toString()).toBe('kept');
    expect((await contentOf(client, restored['id'])).toString()).toBe('restored');
    expect(await findBlobFile(system.dataDir, below['sha256'])).not.toBeNull();
  });

  test('an empty bin is emptied as well, and what comes after stays', async () => {
    expectStatus(await client.delete(bin), 204);
    const entry = await recycledFile(client);
    await afterNextRun(client, 'purge_recycle_bin');
    expect(idsOf((await readPages(client, bin)).items)).toEqual([entry['id']]);
    expectStatus(await client.delete(bin), 204);
    expectStatus(await client.delete(bin), 204);
  });
});

describe('with times of a second', () => {
  let system: System;
  let client: Client;
  /** All that is to go goes at about the same time. */
  let doomed: { entry: Json; inTree: Json[]; tree: Json[]; twin: Json; purged: Json };
  let kept: { file: Json; restored: Json; twin: Json };

  beforeAll(async () => {
    const environment = { STOWAGE_RECYCLE_RETENTION: '1s', STOWAGE_GC_GRACE: '1s', STOWAGE_JOB_INTERVAL: '1s' };
    system = await startSystem(mode(), environment);
    client = await logIn(system.url);
    const restored = await recycledFile(client);
    expectStatus(await client.post(`/api/files/${restored['id']}/restore`), 200);
    kept = {
      file: await client.putFile(uniqueName('kept'), uniqueName('kept')),
      restored,
      twin: await client.putFile(uniqueName('twin'), 'the same'),
    };
    const top = await client.makeDirectory(uniqueName('top'));
    const inner = await client.makeDirectory('inner', top['id']);
    const inTree = [
      await client.putFile('one', uniqueName('one'), { directory: top['id'] }),
      await client.putFile('two', uniqueName('two'), { directory: inner['id'] }),
    ];
    expectStatus(await client.delete(`/api/directories/${top['id']}`), 200);
    const purged = await recycledFile(client);
    expectStatus(await client.delete(`/api/files/${purged['id']}?permanent=true`), 204);
    const twin = await recycledFile(client, 'the same');
    doomed = { entry: await recycledFile(client), inTree, tree: [top, inner], twin, purged };
  });

  afterAll(async () => system.close());

  const gone = (path: string): Promise<true> => until(async () => (await client.get(path)).status === 404);
  const contentGone = ({ sha256: hash }: Json): Promise<true> =>
    until(async () => (await findBlobFile(system.dataDir, hash)) === null);

  test('a file in the bin is removed when its time is over, then its content', async () => {
    const { entry } = doomed;
    expect(Date.parse(entry['purge_at']) - Date.parse(entry['deleted_at'])).toBe(1_000);
    await gone(`/api/files/${entry['id']}`);
    expect(Date.now()).toBeGreaterThan(Date.parse(entry['purge_at']));
    await contentGone(entry);
  });

  test('a directory is removed with all below it, and the content of all', async () => {
    for (const directory of doomed.tree) await gone(`/api/directories/${directory['id']}`);
    for (const file of doomed.inTree) {
      await gone(`/api/files/${file['id']}`);
      await contentGone(file);
    }
  });

  test('content of a file that was removed for good at once goes after the grace time', async () => {
    await contentGone(doomed.purged);
  });

  test('a file of the same bytes as one that is gone keeps its own', async () => {
    await gone(`/api/files/${doomed.twin['id']}`);
    await until(async () => {
      const { json } = expectStatus(await client.get('/api/jobs?kind=remove_blob&limit=1000'), 200);
      return json['items'].length >= 5 && json['items'].every((job: Json) => job['state'] === 'succeeded');
    });
    expect((await contentOf(client, kept.twin['id'])).toString()).toBe('the same');
  });

  test('what is not in the bin, or was restored in time, stays', async () => {
    expect(expectStatus(await client.get(bin), 200).json['items']).toEqual([]);
    for (const file of [kept.file, kept.restored]) {
      expect(await readFile(client, file['id'])).toMatchObject({ state: 'active', deleted_at: null, purge_at: null });
      expect(sha256(await contentOf(client, file['id']))).toBe(file['sha256']);
    }
  });
});
