import { crc32, deflateSync } from 'node:zlib';
import sharp from 'sharp';

/** A small file of some type. */
export interface Sample {
  name: string;
  bytes: Buffer;
  /** What it is found to be. */
  mediaType: string;
}

const text = (name: string, mediaType: string, content: string): Sample => ({
  name,
  mediaType,
  bytes: Buffer.from(content),
});

export const html = '<!doctype html><html><body><script>document.title = "run"</script></body></html>';
export const svg =
  '<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>alert(1)</script><rect width="9" height="9"/></svg>';
export const pdf = '%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\ntrailer\n<< /Root 1 0 R >>\n%%EOF\n';

/** What a viewer may show in place, not sandboxed. */
export async function mediaSamples(): Promise<Sample[]> {
  const picture = sharp({ create: { width: 8, height: 6, channels: 3, background: '#3366cc' } });
  return [
    { name: 'a.png', mediaType: 'image/png', bytes: await picture.clone().png().toBuffer() },
    { name: 'a.jpg', mediaType: 'image/jpeg', bytes: await picture.clone().jpeg().toBuffer() },
    { name: 'a.webp', mediaType: 'image/webp', bytes: await picture.clone().webp().toBuffer() },
    { name: 'a.gif', mediaType: 'image/gif', bytes: await picture.clone().gif().toBuffer() },
    {
      name: 'a.mp4',
      mediaType: 'video/mp4',
      bytes: Buffer.from('0000001c6674797069736f6d0000020069736f6d69736f326d703431', 'hex'),
    },
    {
      name: 'a.mp3',
      mediaType: 'audio/mpeg',
      bytes: Buffer.concat([Buffer.from('49443304000000000000fffb9064', 'hex'), Buffer.alloc(64)]),
    },
    text('a.pdf', 'application/pdf', pdf),
  ];
}

export const plainSample = text('a.txt', 'text/plain', 'plain text, <b>not bold</b>\n');

/** What is never shown in place. */
export const activeSamples: readonly Sample[] = [
  text('a.svg', 'image/svg+xml', svg),
  text('a.html', 'text/html', html),
  text('a.xml', 'application/xml', '<?xml version="1.0"?><a><b/></a>'),
  text('a.xhtml', 'application/xhtml+xml', '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"/>'),
  text('a.json', 'application/json', '{"a": [1, 2]}'),
  text('a.js', 'text/javascript', 'alert(1);\n'),
  text('a.css', 'text/css', 'body { color: red }\n'),
  text('a.csv', 'text/csv', 'a,b\n1,2\n'),
  text('a.md', 'text/markdown', '# Heading\n'),
  { name: 'a.zip', mediaType: 'application/zip', bytes: Buffer.from('504b0304140000000800', 'hex') },
  { name: 'a.bin', mediaType: 'application/octet-stream', bytes: Buffer.from('0001020304ff', 'hex') },
];

/** A picture of random noise, which does not compress. */
export async function noisePicture(width: number, height: number): Promise<Buffer> {
  const noise = { type: 'gaussian', mean: 128, sigma: 60 } as const;
  return sharp({ create: { width, height, channels: 3, background: '#808080', noise } })
    .png()
    .toBuffer();
}

/** A PNG of one bit a pixel, all black: its file is tiny, its picture is not. `rows` fewer than its height cut it short. */
export function blackPng(width: number, height: number, rows = height): Buffer {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.writeUInt8(1, 8);
  const scanlines = deflateSync(Buffer.alloc((1 + Math.ceil(width / 8)) * rows), { level: 9 });
  const signature = Buffer.from('89504e470d0a1a0a', 'hex');
  return Buffer.concat([signature, chunk('IHDR', header), chunk('IDAT', scanlines), chunk('IEND', Buffer.alloc(0))]);
}

function chunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data]);
  const [length, check] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  check.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, check]);
}

/** A GIF of one pixel and very many pages. */
export function manyPagesGif(pages: number): Buffer {
  const head = Buffer.from('47494638396101000100800000000000ffffff', 'hex');
  const page = Buffer.from('21f90400010000002c0000000001000100000202440100', 'hex');
  return Buffer.concat([head, ...Array.from({ length: pages }, () => page), Buffer.from('3b', 'hex')]);
}
