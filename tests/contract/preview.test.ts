import { beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import sharp from 'sharp';
import type { Metadata, Sharp } from 'sharp';
import { expectStatus, logInAs } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { policyOf } from '@stowage/tests/support/content';
import { admin } from '@stowage/tests/support/contract';
import { expectProblem, pointersOf } from '@stowage/tests/support/problems';
import { noisePicture, pdf, svg } from '@stowage/tests/support/samples';
import { uniqueName } from '@stowage/tests/support/system';

const kibibytes64 = 65_536;
let client: Client;
let home: string;

beforeAll(async () => {
  client = await admin();
  home = (await client.makeDirectory(uniqueName('preview')))['id'];
});

function put(name: string, bytes: Buffer | string, type?: string): Promise<Json> {
  return client.putFile(`${uniqueName()}-${name}`, bytes, { directory: home, ...(type === undefined ? {} : { type }) });
}

function preview(file: Json, query = ''): Promise<Answer> {
  return client.get(`/api/files/${file['id']}/preview${query}`);
}

async function pictureOf(answer: Answer): Promise<Metadata> {
  expectStatus(answer, 200);
  expect(answer.headers.get('content-type')).toBe('image/webp');
  expect(answer.headers.get('x-content-type-options')).toBe('nosniff');
  expect(policyOf(answer.headers)).toEqual(
    expect.arrayContaining(["default-src 'none'", 'sandbox', "frame-ancestors 'self'"]),
  );
  expect(answer.headers.get('x-frame-options')).toBe('SAMEORIGIN');
  const metadata = await sharp(answer.bytes).metadata();
  expect(metadata.format).toBe('webp');
  return metadata;
}

describe('of a picture', () => {
  const picture = (width: number, height: number): Sharp =>
    sharp({ create: { width, height, channels: 3, background: '#884422' } });

  test.each([
    ['png', async () => picture(1_200, 600).png().toBuffer()],
    ['jpeg', async () => picture(1_200, 600).jpeg().toBuffer()],
    ['webp', async () => picture(1_200, 600).webp().toBuffer()],
    ['gif', async () => picture(1_200, 600).gif().toBuffer()],
    ['tiff', async () => picture(1_200, 600).tiff().toBuffer()],
    ['avif', async () => picture(1_200, 600).avif({ effort: 0 }).toBuffer()],
  ])('%s is a WebP within 512 pixels, in its proportions', async (extension, make) => {
    const file = await put(`a.${extension}`, await make());
    expect(await pictureOf(await preview(file))).toMatchObject({ width: 512, height: 256 });
  });

  test.each([
    [64, 64, 32],
    [65, 65, 33],
    [512, 512, 256],
    [1_000, 1_000, 500],
    [2_048, 2_048, 1_024],
  ])('of size=%d is %d by %d', async (size, width, height) => {
    const file = await put('a.png', await picture(4_000, 2_000).png().toBuffer());
    expect(await pictureOf(await preview(file, `?size=${size}`))).toMatchObject({
      width,
      height: expect.closeTo(height, -0.5),
    });
  });

  test('is never larger than the picture', async () => {
    const file = await put('a.png', await picture(100, 50).png().toBuffer());
    for (const query of ['', '?size=64', '?size=2048']) {
      const { width, height } = await pictureOf(await preview(file, query));
      expect([width, height]).toEqual(query === '?size=64' ? [64, 32] : [100, 50]);
    }
  });

  test.each(['63', '0', '-1', '2049', '100000', '', 'abc', '128.5', '64&size=65'])('refuses size=%s', async (size) => {
    const file = await put('a.png', await picture(80, 80).png().toBuffer());
    const problem = expectProblem(await preview(file, `?size=${size}`), 400, 'validation_failed');
    expect(pointersOf(problem)[0]).toMatch(/^\?size/);
  });

  test('stands upright, and carries none of its metadata', async () => {
    // Red above green as it is to be seen; orientation 6 stores it lying on its side.
    const upright = await sharp({ create: { width: 200, height: 400, channels: 3, background: '#00ff00' } })
      .composite([
        {
          input: await sharp({ create: { width: 200, height: 200, channels: 3, background: '#ff0000' } })
            .png()
            .toBuffer(),
          top: 0,
          left: 0,
        },
      ])
      .png()
      .toBuffer();
    const lying = sharp(await sharp(upright).rotate(270).png().toBuffer());
    const bytes = await lying
      .withExif({ IFD0: { Copyright: 'somebody', Artist: 'secret place' } })
      .withMetadata({ orientation: 6 })
      .jpeg()
      .toBuffer();
    const file = await put('a.jpg', bytes);
    const answer = await preview(file);
    const metadata = await pictureOf(answer);
    expect([metadata.width, metadata.height]).toEqual([200, 400]);
    expect([metadata.exif, metadata.orientation, metadata.icc, metadata.xmp]).toEqual([
      undefined,
      undefined,
      undefined,
      undefined,
    ]);
    expect(answer.bytes.includes('secret place')).toBe(false);
    const { data, info } = await sharp(answer.bytes).removeAlpha().raw().toBuffer({ resolveWithObject: true });
    const pixel = (x: number, y: number): number[] => [
      ...data.subarray((y * info.width + x) * 3, (y * info.width + x) * 3 + 2),
    ];
    const [above, below] = [pixel(100, 50), pixel(100, 350)];
    expect((above[0] ?? 0) > 200 && (above[1] ?? 255) < 60).toBe(true);
    expect((below[1] ?? 0) > 200 && (below[0] ?? 255) < 60).toBe(true);
  });

  test('that moves is its first frame, still', async () => {
    const frames = await sharp(
      [await picture(40, 40).png().toBuffer(), await picture(40, 40).negate().png().toBuffer()],
      { join: { animated: true } },
    )
      .gif({ delay: [100, 100] })
      .toBuffer();
    const metadata = await pictureOf(await preview(await put('a.gif', frames)));
    expect([metadata.width, metadata.height, metadata.pages ?? 1]).toEqual([40, 40, 1]);
  });

  test('of some MB is small, and the same when it is asked for again', async () => {
    const bytes = await noisePicture(1_500, 1_000);
    expect(bytes.length).toBeGreaterThan(2 * 1024 * 1024);
    const file = await put('noise.png', bytes);
    const first = await preview(file);
    await pictureOf(first);
    expect(first.bytes.length).toBeLessThan(bytes.length / 4);
    const again = await preview(file);
    expect(again.bytes).toEqual(first.bytes);
    expect(again.headers.get('etag')).toBe(first.headers.get('etag'));
    expect((await preview(file, '?size=128')).headers.get('etag')).not.toBe(first.headers.get('etag'));
  });

  test('to many at one moment', async () => {
    const files = await Promise.all(
      Array.from({ length: 4 }, (_, n) =>
        picture(300 + n, 200)
          .png()
          .toBuffer()
          .then((bytes) => put('a.png', bytes)),
      ),
    );
    const answers = await Promise.all(
      Array.from({ length: 16 }, (_, n) => preview(files[n % 4] ?? {}, `?size=${64 + n}`)),
    );
    for (const answer of answers) await pictureOf(answer);
  });
});

describe('of text', () => {
  function textOf(answer: Answer): Buffer {
    expectStatus(answer, 200);
    expect(answer.headers.get('content-type')).toBe('text/plain; charset=utf-8');
    expect(answer.headers.get('x-content-type-options')).toBe('nosniff');
    expect(policyOf(answer.headers)).toEqual(expect.arrayContaining(["default-src 'none'", 'sandbox']));
    return answer.bytes;
  }

  test.each([
    ['a.txt', 'plain text\n'],
    ['a.json', '{"a": [1, 2, 3]}'],
    ['a.csv', 'a,b\n1,2\n'],
    ['a.md', '# Heading\n\n<script>alert(1)</script>\n'],
    ['a.ts', 'export const answer: number = 42;\n'],
    ['a.js', 'alert(1);\n'],
    ['a.py', 'print("hello")\n'],
    ['a.c', 'int main(void) { return 0; }\n'],
    ['a.go', 'package main\n'],
    ['a.rs', 'fn main() {}\n'],
    ['a.java', 'class A {}\n'],
    ['a.sh', '#!/bin/sh\nexit 0\n'],
    ['a.sql', 'select 1;\n'],
    ['a.css', 'body { color: red }\n'],
    ['a.html', '<!doctype html><script>alert(1)</script>'],
    ['a.xml', '<?xml version="1.0"?><a/>'],
    ['a.yaml', 'a: 1\n'],
    ['a.toml', 'a = 1\n'],
    ['README', 'no extension\n'],
    ['empty.txt', ''],
  ])('%s is the text as it is, and never more than text', async (name, content) => {
    expect(textOf(await preview(await put(name, content))).toString()).toBe(content);
  });

  test.each([kibibytes64 - 1, kibibytes64, kibibytes64 + 1, 300_000])(
    'of %d bytes is its first 64 KiB',
    async (size) => {
      const content = 'abcdefghij\n'.repeat(Math.ceil(size / 11)).slice(0, size);
      const bytes = textOf(await preview(await put('long.txt', content)));
      expect(bytes.toString()).toBe(content.slice(0, kibibytes64));
    },
  );

  test.each(['é', '中', '\u{1f600}'])('never ends within a character: %s', async (character) => {
    for (let shift = 0; shift < 4; shift += 1) {
      const content = 'x'.repeat(shift) + character.repeat(40_000);
      const text = textOf(await preview(await put('wide.txt', content))).toString();
      expect(text).not.toContain('\ufffd');
      expect(content.startsWith(text)).toBe(true);
      expect(Buffer.byteLength(text)).toBeGreaterThan(kibibytes64 - 4);
      expect(Buffer.byteLength(text)).toBeLessThanOrEqual(kibibytes64);
    }
  });

  test('takes a size and makes nothing of it', async () => {
    const file = await put('a.txt', 'text');
    expect(textOf(await preview(file, '?size=64')).toString()).toBe('text');
    expectProblem(await preview(file, '?size=63'), 400, 'validation_failed');
    expectProblem(await preview(file, '?width=64'), 400, 'validation_failed');
  });
});

describe('of all else there is none', () => {
  const mp4 = Buffer.from('0000001c6674797069736f6d0000020069736f6d69736f326d703431', 'hex');
  const zip = Buffer.from('504b0304140000000800', 'hex');

  test.each<[string, Buffer]>([
    ['a.pdf', Buffer.from(pdf)],
    ['a.zip', zip],
    ['a.svg', Buffer.from(svg)],
    ['a.mp4', mp4],
    ['a.bin', Buffer.from('000102030405ff', 'hex')],
    ['empty.bin', Buffer.alloc(0)],
    ['a.wasm', Buffer.from('0061736d01000000', 'hex')],
  ])('%s is 415', async (name, bytes) => {
    expectProblem(await preview(await put(name, bytes)), 415, 'unsupported_media_type');
  });

  test('binary content that calls itself text is no text', async () => {
    const file = await put(
      'a.txt',
      Buffer.concat([randomBytes(100), Buffer.alloc(10), randomBytes(100)]),
      'text/plain',
    );
    const answer = await preview(file);
    if (answer.status !== 415)
      throw new Error(`expected 415, got ${answer.status} ${answer.headers.get('content-type') ?? ''}`);
  });
});

test('a viewer sees previews', async () => {
  const viewer = await logInAs(client, 'viewer', uniqueName('viewer'));
  const file = await put('a.txt', 'for all');
  expectStatus(await viewer.get(`/api/files/${file['id']}/preview`), 200);
});

test('what is in the bin, or gone, has none, even if it was kept', async () => {
  const files = [await put('a.txt', 'was here'), await put('a.png', await noisePicture(70, 70))];
  for (const file of files) {
    expectStatus(await preview(file), 200);
    expectStatus(await client.delete(`/api/files/${file['id']}`), 200);
    expectProblem(await preview(file), 409, 'state_conflict');
    expectStatus(await client.post(`/api/files/${file['id']}/restore`), 200);
    expectStatus(await preview(file), 200);
    expectStatus(await client.delete(`/api/files/${file['id']}`), 200);
    expectStatus(await client.delete(`/api/files/${file['id']}?permanent=true`), 204);
    expectProblem(await preview(file), 404, 'not_found');
  }
});
