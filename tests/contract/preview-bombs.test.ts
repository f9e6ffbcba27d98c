import { beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { expectStatus } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { admin } from '@stowage/tests/support/contract';
import { expectProblem } from '@stowage/tests/support/problems';
import { blackPng, manyPagesGif, noisePicture } from '@stowage/tests/support/samples';
import { uniqueName } from '@stowage/tests/support/system';

const limitMs = 15_000;
const script =
  '<svg xmlns="http://www.w3.org/2000/svg"><script>fetch("/api/auth/me")</script><image href="http://127.0.0.1:1/x"/></svg>';
const entities = `<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY a "${'x'.repeat(100)}"><!ENTITY b "${'&a;'.repeat(100)}">]><svg xmlns="http://www.w3.org/2000/svg">&b;</svg>`;

/** Files that were made to hurt who looks into them, and how their previews are refused. */
const bombs: [what: string, name: string, status: number, code: string, make: () => Promise<Buffer>][] = [
  ['a PNG of 20,000 by 20,000', 'a.png', 422, 'unprocessable', async () => blackPng(20_000, 20_000)],
  ['a PNG that says it is 65,535 by 65,535', 'a.png', 422, 'unprocessable', async () => blackPng(65_535, 65_535, 1)],
  ['a PNG that is cut off', 'a.png', 422, 'unprocessable', async () => cutOff(await noisePicture(600, 600))],
  [
    'a PNG of nothing but its signature',
    'a.png',
    422,
    'unprocessable',
    async () => Buffer.concat([Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex'), Buffer.alloc(100)]),
  ],
  [
    'a picture whose bytes are wrong in the middle',
    'a.png',
    422,
    'unprocessable',
    async () => spoilt(await noisePicture(600, 600)),
  ],
  ['a GIF of 100,000 pages', 'a.gif', 422, 'unprocessable', async () => manyPagesGif(100_000)],
  [
    'a JPEG that ends after its header',
    'a.jpg',
    422,
    'unprocessable',
    async () => Buffer.from('ffd8ffe000104a46494600010100000100010000ffc00011084e204e20030122000211010311', 'hex'),
  ],
  ['an SVG with a script', 'a.svg', 415, 'unsupported_media_type', async () => Buffer.from(script)],
  ['an SVG that says it is a PNG', 'a.png', 415, 'unsupported_media_type', async () => Buffer.from(`${script}\0`)],
  ['an SVG of entities', 'a.svg', 415, 'unsupported_media_type', async () => Buffer.from(entities)],
];

function cutOff(bytes: Buffer): Buffer {
  return bytes.subarray(0, Math.floor(bytes.length / 2));
}

function spoilt(bytes: Buffer): Buffer {
  randomBytes(5_000).copy(bytes, Math.floor(bytes.length / 2));
  return bytes;
}

describe('files made to hurt (T25)', () => {
  let client: Client;
  let home: string;

  beforeAll(async () => {
    client = await admin();
    home = (await client.makeDirectory(uniqueName('bombs')))['id'];
  });

  const put = (name: string, bytes: Buffer): Promise<Json> =>
    client.putFile(`${uniqueName()}-${name}`, bytes, { directory: home });
  const preview = (file: Json): Promise<Answer> => client.get(`/api/files/${file['id']}/preview`);

  /** Answers of `work`, which must come in time, while the system answers others as ever. */
  async function inTime<R>(work: () => Promise<R>): Promise<R> {
    const start = performance.now();
    let running = true;
    const watched = work().finally(() => (running = false));
    let slowest = 0;
    do {
      const asked = performance.now();
      expectStatus(await client.get('/api/auth/me'), 200);
      slowest = Math.max(slowest, performance.now() - asked);
      await new Promise((resolve) => setTimeout(resolve, 20));
    } while (running);
    const result = await watched;
    expect(performance.now() - start).toBeLessThan(limitMs);
    expect(slowest).toBeLessThan(2_000);
    return result;
  }

  test.each(bombs)('%s is refused in time, while others are served', async (_what, name, status, code, make) => {
    const file = await put(name, await make());
    expectProblem(await inTime(() => preview(file)), status, code);
  });

  test('all of them at one moment are refused in time, and a good picture gets its preview after them', async () => {
    const files = await Promise.all(bombs.map(async ([, name, , , make]) => put(name, await make())));
    const answers = await inTime(() => Promise.all(files.map(preview)));
    expect(answers.map(({ status }) => status)).toEqual(bombs.map(([, , status]) => status));
    const good = await put('good.png', await noisePicture(100, 100));
    expect(expectStatus(await preview(good), 200).headers.get('content-type')).toBe('image/webp');
  });

  test('a picture with an archive behind it is a picture', async () => {
    const file = await put(
      'a.png',
      Buffer.concat([await noisePicture(64, 64), Buffer.from('504b0304140000000800', 'hex'), randomBytes(1_000)]),
    );
    expect(expectStatus(await preview(file), 200).headers.get('content-type')).toBe('image/webp');
  });

  test('a text of 100 MB shows its first 64 KiB at once', async () => {
    const line = Buffer.from(`${'a line of text '.repeat(6)}\n`);
    const file = await put('large.txt', Buffer.alloc(100_000_000, line));
    const { bytes } = expectStatus(await inTime(() => preview(file)), 200);
    expect(bytes).toEqual(Buffer.alloc(65_536, line));
    expectStatus(await client.delete(`/api/files/${file['id']}`), 200);
  });

  test('a picture too large to be looked at is refused without being read', async () => {
    const file = await put('large.png', Buffer.concat([await noisePicture(64, 64), Buffer.alloc(65 * 1024 * 1024)]));
    expectProblem(await inTime(() => preview(file)), 422, 'unprocessable');
    expectStatus(await client.delete(`/api/files/${file['id']}`), 200);
  });
});
