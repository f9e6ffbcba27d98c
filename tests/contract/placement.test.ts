import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { appendFile, cp, mkdir, rename, rm, rmdir, symlink, truncate, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { defaultBackend } from '@stowage/tests/support/backends';
import { blobFileOf, flipBit } from '@stowage/tests/support/blobs-on-disk';
import { expectStatus, logIn, sha256, until } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { receive } from '@stowage/tests/support/content';
import type { Received } from '@stowage/tests/support/content';
import { mode } from '@stowage/tests/support/contract';
import { expectProblem, expectRetryAfter } from '@stowage/tests/support/problems';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';
import { at, readFile as readJson } from '@stowage/tests/support/tree';
import { contentOf } from '@stowage/tests/support/uploads';

const mebibyte = 1024 * 1024;
const size = 3 * mebibyte + 5;

let system: System;
let client: Client;

beforeAll(async () => {
  system = await startSystem(mode(), { STOWAGE_LOG_LEVEL: 'error' });
  client = await logIn(system.url);
});

afterAll(async () => system.close());

/** A file and where its only replica lies. */
interface Stored {
  file: Json;
  bytes: Buffer;
  blob: string;
}

async function store(bytes = randomBytes(size), name = uniqueName('stored')): Promise<Stored> {
  const file = await client.putFile(name, bytes);
  return { file, bytes, blob: await blobFileOf(system.dataDir, sha256(bytes)) };
}

function read({ file }: Stored, range?: string, view = 'download'): Promise<Received> {
  return receive(client, `/api/files/${file['id']}/${view}`, range === undefined ? {} : { range });
}

/** Expects that nothing but right bytes came, of those from `first` up to, not including, `end`, and not all of them. */
function expectBroken(received: Received, bytes: Buffer, first: number, end: number): void {
  expect(received.whole).toBe(false);
  expect(received.bytes.length).toBeLessThanOrEqual(end - first);
  expect(sha256(received.bytes)).toBe(sha256(bytes.subarray(first, first + received.bytes.length)));
}

/** Expects a 503 in place of content, through and through. */
async function expectUnavailable(
  { file }: Stored,
  view = 'download',
  headers: Record<string, string> = {},
): Promise<void> {
  const answer = await client.get(`/api/files/${file['id']}/${view}`, headers);
  expectProblem(answer, 503, 'unavailable');
  expectRetryAfter(answer);
  expect(answer.headers.has('content-disposition')).toBe(false);
  expect(answer.headers.has('etag')).toBe(false);
}

/** Expects all of its bytes. */
async function expectServed({ file, bytes }: Stored): Promise<void> {
  expect(sha256(await contentOf(client, file['id']))).toBe(sha256(bytes));
}

async function jobsOf({ blob }: Stored): Promise<Json[]> {
  const { items } = expectStatus(await client.get('/api/jobs?kind=verify_blob&limit=1000'), 200).json;
  return items.filter((job: Json) => blob.endsWith(job['params']['blob_id']));
}

/** Expects that the replica is known as bad, once a job has looked at it. */
async function expectBad(stored: Stored, state: 'corrupt' | 'missing'): Promise<void> {
  const seen = async (): Promise<Json> => (await readJson(client, stored.file['id']))['placement'];
  expect(await seen()).toMatchObject({ state: 'lost', replicas: [{ state }] });
  await until(async () => (await jobsOf(stored)).some((job) => job['state'] === 'succeeded'));
  expect(at(await jobsOf(stored), 0)['result']).toMatchObject({ verdict: state });
  expect(await seen()).toMatchObject({ state: 'lost', replicas: [{ state }] });
}

describe('a bit that turned on the disk', () => {
  const places: [string, number][] = [
    ['the first byte', 0],
    ['the last byte of the first chunk', mebibyte - 1],
    ['the first byte of the second chunk', mebibyte],
    ['the middle', Math.floor(1.5 * mebibyte)],
    ['the last byte of a chunk', 2 * mebibyte - 1],
    ['the first byte of the last chunk', 3 * mebibyte],
    ['the last byte', size - 1],
  ];
  const chunkStart = (position: number): number => position - (position % mebibyte);

  test.each(places)('%s never arrives: what went before does, then the connection breaks', async (_what, position) => {
    const stored = await store();
    await flipBit(stored.blob, position);
    const received = await read(stored);
    if (position < mebibyte) {
      expect([received.status, received.whole]).toEqual([503, true]);
      expect(received.headers.get('retry-after')).toMatch(/^\d+$/);
    } else {
      expect(received.status).toBe(200);
      expect(received.headers.get('content-length')).toBe(String(size));
      expectBroken(received, stored.bytes, 0, chunkStart(position));
    }
    await expectBad(stored, 'corrupt');
    await expectUnavailable(stored);
    await expectUnavailable(stored, 'stream');
    await expectUnavailable(stored, 'download', { range: 'bytes=0-0' });
  });

  test.each(places)(
    '%s does not come through a range that touches its chunk, and not through the others',
    async (_what, position) => {
      const stored = await store();
      await flipBit(stored.blob, position);
      const bad = chunkStart(position);
      const good = [0, 1, 2, 3].map((chunk) => chunk * mebibyte).filter((start) => start !== bad);
      for (const start of good) {
        const end = Math.min(start + mebibyte, size);
        for (const [first, last] of [
          [start, end - 1],
          [start, start],
          [end - 1, end - 1],
        ] as const) {
          const received = await read(stored, `bytes=${first}-${last}`, 'stream');
          expect([received.status, received.whole]).toEqual([206, true]);
          expect(sha256(received.bytes)).toBe(sha256(stored.bytes.subarray(first, last + 1)));
        }
      }
      expect((await readJson(client, stored.file['id']))['placement']['state']).toBe('satisfied');
      // A byte of the bad chunk that is itself right is not believed either.
      const other = position === bad ? Math.min(bad + 1, size - 1) : bad;
      await expectUnavailable(stored, 'stream', { range: `bytes=${other}-${other}` });
      await expectBad(stored, 'corrupt');
    },
  );

  test('breaks a range that runs into its chunk', async () => {
    const stored = await store();
    await flipBit(stored.blob, 2 * mebibyte + 9);
    const first = mebibyte - 100;
    const received = await read(stored, `bytes=${first}-${size - 1}`);
    expect(received.status).toBe(206);
    expectBroken(received, stored.bytes, first, 2 * mebibyte);
    await expectBad(stored, 'corrupt');
  });

  test('while the file is being sent never arrives', async () => {
    for (let round = 0; round < 5; round += 1) {
      const stored = await store(randomBytes(8 * mebibyte));
      const receiving = read(stored);
      await flipBit(stored.blob, (round + 2) * mebibyte);
      const received = await receiving;
      if (received.whole && received.status === 200) expect(sha256(received.bytes)).toBe(sha256(stored.bytes));
      else if (received.status === 200) expectBroken(received, stored.bytes, 0, stored.bytes.length - 1);
      else expect(received.status).toBe(503);
    }
  });

  test('keeps previews from being made', async () => {
    const stored = await store(Buffer.from('a text '.repeat(100)), `${uniqueName()}.txt`);
    await flipBit(stored.blob, 50);
    await expectUnavailable(stored, 'preview');
    await expectBad(stored, 'corrupt');
  });

  test('leaves the file in the tree: it is read, renamed and recycled', async () => {
    const stored = await store();
    await flipBit(stored.blob, 0);
    await expectUnavailable(stored);
    const id: string = stored.file['id'];
    expectStatus(await client.post(`/api/files/${id}/rename`, { name: uniqueName() }), 200);
    expectStatus(await client.delete(`/api/files/${id}`), 200);
    expectStatus(await client.post(`/api/files/${id}/restore`), 200);
    await expectBad(stored, 'corrupt');
  });
});

describe('a blob that is not what it was', () => {
  const cases: [string, (stored: Stored) => Promise<void>][] = [
    ['gone', ({ blob }) => unlink(blob)],
    ['with its whole folder', ({ blob }) => rm(dirname(blob), { recursive: true })],
    ['a byte shorter', ({ blob }) => truncate(blob, size - 1)],
    ['cut at a chunk edge', ({ blob }) => truncate(blob, 2 * mebibyte)],
    ['cut within a chunk', ({ blob }) => truncate(blob, mebibyte + 7)],
    ['empty', ({ blob }) => truncate(blob, 0)],
    ['a folder', async ({ blob }) => void (await unlink(blob), await mkdir(blob))],
    ['a pipe', async ({ blob }) => void (await unlink(blob), execFileSync('mkfifo', [blob]))],
    ['a link to a secret (T12)', async ({ blob }) => void (await unlink(blob), await symlink('/etc/passwd', blob))],
    ['a link to nothing', async ({ blob }) => void (await unlink(blob), await symlink('/nothing/here', blob))],
    ['a link to itself', async ({ blob }) => void (await unlink(blob), await symlink(blob, blob))],
    [
      'a link to its own true content (T12)',
      async ({ blob }) => void (await rename(blob, `${blob}.moved`), await symlink(`${blob}.moved`, blob)),
    ],
  ];

  test.each(cases)('%s is not served: 503 before the first byte, and it is missing', async (_what, damage) => {
    const stored = await store();
    await damage(stored);
    const received = await read(stored);
    expect([received.status, received.whole]).toEqual([503, true]);
    expect(received.bytes.toString()).not.toContain('root:');
    await expectBad(stored, 'missing');
    await expectUnavailable(stored, 'stream');
    const head = await client.call('HEAD', `/api/files/${stored.file['id']}/download`);
    expect(head.status).toBe(503);
    expectRetryAfter(head);
  });

  test('a shorter one still gives what it has, checked', async () => {
    const stored = await store();
    await truncate(stored.blob, 2 * mebibyte + 7);
    const received = await read(stored, `bytes=5-${2 * mebibyte - 1}`);
    expect([received.status, received.whole]).toEqual([206, true]);
    expect(sha256(received.bytes)).toBe(sha256(stored.bytes.subarray(5, 2 * mebibyte)));
    await expectUnavailable(stored, 'download', { range: `bytes=${2 * mebibyte}-${2 * mebibyte}` });
    await expectBad(stored, 'missing');
  });

  test('a longer one gives no byte too many', async () => {
    const stored = await store();
    await appendFile(stored.blob, 'and something more');
    const received = await read(stored);
    expect([received.status, received.whole]).toEqual([200, true]);
    expect(sha256(received.bytes)).toBe(sha256(stored.bytes));
    const answer = await client.get(`/api/files/${stored.file['id']}/download`, { range: `bytes=${size}-` });
    expectProblem(answer, 416, 'range_not_satisfiable');
  });

  test('two blobs of one size that changed places give away nothing of each other', async () => {
    const [one, other] = [await store(), await store()];
    await rename(one.blob, `${one.blob}.swap`);
    await rename(other.blob, one.blob);
    await rename(`${one.blob}.swap`, other.blob);
    for (const stored of [one, other]) {
      await expectUnavailable(stored);
      await expectBad(stored, 'corrupt');
    }
  });

  test('a linked folder above it is not followed, and proves nothing: the folder back, it is served again (T12)', async () => {
    const stored = await store();
    const folder = dirname(stored.blob);
    const elsewhere = join(system.dataDir, uniqueName('elsewhere'));
    // Other tests left in it what can't be copied.
    await cp(folder, elsewhere, { recursive: true, filter: (path) => path === folder || path === stored.blob });
    await rename(folder, `${folder}.moved`);
    await symlink(elsewhere, folder);
    await expectUnavailable(stored);
    expect((await readJson(client, stored.file['id']))['placement']).toMatchObject({ state: 'satisfied' });
    await unlink(folder);
    await rename(`${folder}.moved`, folder);
    await expectServed(stored);
  });

  test('nothing can be written through a planted link (T12)', async () => {
    const outside = join(system.dataDir, uniqueName('outside'));
    await mkdir(outside);
    const staging = join(system.dataDir, 'backends/local/staging');
    await rename(staging, `${staging}.moved`);
    await symlink(outside, staging);
    try {
      const headers = { 'upload-length': '4', 'upload-metadata': `filename ${btoa(uniqueName())}` };
      const answer = await client.tus('POST', '/files', headers, Buffer.from('evil'));
      expect([answer.status, answer.json['code']]).toEqual([503, 'unavailable']);
      expect(execFileSync('find', [outside, '-type', 'f']).toString()).toBe('');
    } finally {
      await unlink(staging);
      await rename(`${staging}.moved`, staging);
    }
    await expectServed(await store());
  });
});

describe('a disk that went away and came back', () => {
  const root = (): string => join(system.dataDir, 'backends/local');
  const unmounted = async (work: () => Promise<void>): Promise<void> => {
    const marker = join(root(), '.stowage-backend.json');
    await rename(marker, `${marker}.away`);
    try {
      await work();
    } finally {
      await rename(`${marker}.away`, marker);
      const { id } = await defaultBackend(client);
      expectStatus(await client.post(`/api/backends/${id}/check`), 200);
    }
  };

  test('a corrupt replica that can not be looked at just now is looked at again, and served once it is good', async () => {
    const stored = await store();
    await expectServed(stored);
    const { verified_at: before } = at<Json>((await readJson(client, stored.file['id']))['placement']['replicas'], 0);
    await unmounted(async () => {
      await flipBit(stored.blob, mebibyte - 1);
      expect((await read(stored)).status).toBe(503);
      expect((await readJson(client, stored.file['id']))['placement']).toMatchObject({
        state: 'lost',
        replicas: [{ state: 'corrupt' }],
      });
      const job = await until(
        async () => (await jobsOf(stored)).find((one) => one['attempt'] > 0 && one['error']) ?? null,
      );
      expect(job).toMatchObject({ state: 'pending', error: { code: 'unavailable' } });
      await flipBit(stored.blob, mebibyte - 1);
    });
    const placement = await until(async () => {
      expectStatus(await client.post('/api/jobs/run-pending', { kinds: ['verify_blob'], wait_seconds: 5 }), 200);
      const { placement: now } = await readJson(client, stored.file['id']);
      return now['state'] === 'satisfied' ? now : null;
    });
    expect(placement['replicas']).toMatchObject([{ state: 'available' }]);
    expect(Date.parse(placement['replicas'][0]['verified_at'])).toBeGreaterThan(Date.parse(before));
    const done = await until(async () => (await jobsOf(stored)).find((job) => job['state'] === 'succeeded') ?? null);
    expect(done).toMatchObject({ result: { verdict: 'good' } });
    await expectServed(stored);
  });

  test('what is not there while the disk is away is not called missing, and is served when it is back (R19)', async () => {
    const stored = await store();
    const blobs = join(root(), 'blobs');
    await unmounted(async () => {
      await rename(blobs, `${blobs}.away`);
      await mkdir(blobs);
      await expectUnavailable(stored);
      expect((await readJson(client, stored.file['id']))['placement']).toMatchObject({
        state: 'degraded',
        replicas: [{ state: 'available' }],
      });
      expect(await jobsOf(stored)).toEqual([]);
      await rmdir(blobs);
      await rename(`${blobs}.away`, blobs);
    });
    await expectServed(stored);
  });
});
