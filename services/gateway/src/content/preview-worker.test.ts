import { once } from 'node:events';
import { crc32, createDeflate, deflateRawSync } from 'node:zlib';
import { afterAll, describe, expect, test } from '@jest/globals';
import sharp from 'sharp';
import type { Sharp } from 'sharp';
import { ImagePreviewer } from './preview-process.ts';

const previewer = new ImagePreviewer({ pixels: 50_000_000, timeoutMs: 10_000, memoryBytes: 512 * 2 ** 20, queue: 4 });
const never = new AbortController().signal;
const unreadable = expect.objectContaining({ code: 'unprocessable', detail: 'The file cannot be read as a picture.' });
const tooMuch = expect.objectContaining({ code: 'unprocessable', detail: expect.stringContaining('takes too much') });

afterAll(() => previewer.close());

/** Red on the left, blue on the right. */
function twoColours(width: number, height: number): Sharp {
  const blue = { width: Math.floor(width / 2), height, channels: 3, background: '#00f' } as const;
  const picture = sharp({ create: { width, height, channels: 3, background: '#f00' } });
  return picture.composite([{ input: { create: blue }, gravity: 'east' }]);
}

function pngChunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type), data]);
  const frame = Buffer.alloc(8);
  frame.writeUInt32BE(data.length, 0);
  frame.writeUInt32BE(crc32(body), 4);
  return Buffer.concat([frame.subarray(0, 4), body, frame.subarray(4)]);
}

/** A black PNG whose rows are compressed as a stream, so that it is cheap for us and dear for who decodes it. */
async function blackPng(
  width: number,
  height: number,
  depth: number,
  colour: number,
  rawBytes: number,
  interlaced = 0,
) {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([depth, colour, 0, 0, interlaced], 8);
  const deflate = createDeflate({ level: 1 });
  const rows = (async () => {
    const zeros = Buffer.alloc(2 ** 20);
    for (let left = rawBytes; left > 0; left -= zeros.length) {
      if (!deflate.write(zeros.subarray(0, left))) await once(deflate, 'drain');
    }
    deflate.end();
  })();
  const [data] = await Promise.all([deflate.toArray(), rows]);
  const signature = Buffer.from('89504e470d0a1a0a', 'hex');
  const chunks = [pngChunk('IHDR', header), pngChunk('IDAT', Buffer.concat(data)), pngChunk('IEND', Buffer.alloc(0))];
  return Buffer.concat([signature, ...chunks]);
}

function gifOf(frames: number): Buffer {
  const start = Buffer.from('47494638396101000100800000ffffff000000', 'hex');
  const frame = Buffer.from('21f904010a0000002c00000000010001000002024401' + '00', 'hex');
  return Buffer.concat([start, Buffer.concat(Array<Buffer>(frames).fill(frame)), Buffer.from([0x3b])]);
}

describe('what it makes', () => {
  test('a WebP that fits, in proportion', async () => {
    const webp = await previewer.makeWebp(() => twoColours(800, 400).png().toBuffer(), 100, never);
    expect(await sharp(webp).metadata()).toMatchObject({ format: 'webp', width: 100, height: 50 });
  });

  test('nothing larger than the original', async () => {
    const webp = await previewer.makeWebp(() => twoColours(80, 40).png().toBuffer(), 512, never);
    expect(await sharp(webp).metadata()).toMatchObject({ width: 80, height: 40 });
  });

  test('an upright picture without the metadata of the original', async () => {
    const exif = { IFD0: { Copyright: 'somebody', Make: 'a camera' }, IFD3: { GPSLatitudeRef: 'N' } };
    const jpeg = await twoColours(200, 100)
      .withExif(exif)
      .withIccProfile('p3')
      .withMetadata({ orientation: 6 })
      .jpeg()
      .toBuffer();
    expect(await sharp(jpeg).metadata()).toMatchObject({
      orientation: 6,
      exif: expect.anything(),
      icc: expect.anything(),
    });

    const webp = await previewer.makeWebp(async () => jpeg, 100, never);
    const made = await sharp(webp).metadata();
    expect(made).toMatchObject({ width: 50, height: 100 });
    expect([made.exif, made.icc, made.xmp, made.iptc, made.orientation]).toEqual(Array(5).fill(undefined));
    expect(webp.includes('somebody')).toBe(false);

    const { data } = await sharp(webp).removeAlpha().raw().toBuffer({ resolveWithObject: true });
    const [topRed, , topBlue] = data;
    expect(topRed).toBeGreaterThan(200);
    expect(topBlue).toBeLessThan(60);
    expect(data.at(-1)).toBeGreaterThan(200);
  });

  test.each(['jpeg', 'png', 'webp', 'gif', 'tiff', 'avif'] as const)('reads %s', async (format) => {
    const webp = await previewer.makeWebp(() => twoColours(60, 30).toFormat(format).toBuffer(), 64, never);
    expect(await sharp(webp).metadata()).toMatchObject({ format: 'webp', width: 60, height: 30 });
  });

  test('the first page of an animation', async () => {
    const made = await sharp(await previewer.makeWebp(async () => gifOf(20), 64, never)).metadata();
    expect(made).toMatchObject({ width: 1, height: 1 });
    expect(made.pages ?? 1).toBe(1);
  });
});

describe('what it refuses', () => {
  const script = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>alert(1)</script></svg>';

  test.each([
    ['SVG', Buffer.from(script)],
    ['SVG with a prolog', Buffer.from(`<?xml version="1.0"?>${script}`)],
    ['PDF', Buffer.from('%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj')],
    [
      'a zip named png',
      Buffer.concat([Buffer.from('504b0304140000000800', 'hex'), deflateRawSync(Buffer.alloc(9_999))]),
    ],
    ['a JPEG of a header only', Buffer.from('ffd8ffe000104a46494600010100000100010000', 'hex')],
    ['raw pixels', Buffer.alloc(300)],
    ['nothing', Buffer.alloc(0)],
  ])('%s, in plain words', async (_, bytes) => {
    await expect(previewer.makeWebp(async () => bytes, 64, never)).rejects.toEqual(unreadable);
  });

  test('a truncated PNG', async () => {
    const noise = Buffer.from(Array.from({ length: 30_000 }, (_, index) => (index * 7919) % 251));
    const png = await sharp(noise, { raw: { width: 100, height: 100, channels: 3 } })
      .png()
      .toBuffer();
    await expect(previewer.makeWebp(async () => png.subarray(0, png.length / 2), 64, never)).rejects.toEqual(
      unreadable,
    );
  });

  test('20,000 x 20,000 pixels, at once', async () => {
    const bomb = await blackPng(20_000, 20_000, 1, 0, 20_000 * 2_501);
    expect(bomb.length).toBeLessThan(1_000_000);
    const before = performance.now();
    await expect(previewer.makeWebp(async () => bomb, 64, never)).rejects.toEqual(tooMuch);
    expect(performance.now() - before).toBeLessThan(2_000);
  });

  test('one pixel wide, but endless', async () => {
    const tall = await blackPng(1, 2_000_000_000, 1, 0, 1_000);
    await expect(previewer.makeWebp(async () => tall, 64, never)).rejects.toEqual(unreadable);
  });

  test('100,000 frames', async () => {
    await expect(previewer.makeWebp(async () => gifOf(100_000), 64, never)).rejects.toEqual(tooMuch);
  });
});
