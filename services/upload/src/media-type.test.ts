import { deflateRawSync, gzipSync } from 'node:zlib';
import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { detectMediaType, fileClassOf } from './media-type.ts';

const png = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);
const jpeg = Buffer.from('ffd8ffe000104a46494600010100000100010000ffdb', 'hex');
const gif = Buffer.from(
  '47494638396101000100800000ffffff00000021f90401000000002c00000000010001000002024401003b',
  'hex',
);
const cfb = Buffer.concat([Buffer.from('d0cf11e0a1b11ae1', 'hex'), Buffer.alloc(504)]);
const html = Buffer.from('<!doctype html><html><script>alert(1)</script></html>');
const xmlSvg = Buffer.from('<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>');

/** The first entry of a zip file, which is all that detection sees of a large one. */
function zipHead(name: string, content = 'x'): Buffer {
  const body = deflateRawSync(content);
  const header = Buffer.alloc(30);
  header.writeUInt32LE(0x04034b50, 0);
  header.writeUInt16LE(20, 4);
  header.writeUInt16LE(8, 8);
  header.writeUInt32LE(body.length, 18);
  header.writeUInt32LE(content.length, 22);
  header.writeUInt16LE(name.length, 26);
  return Buffer.concat([header, Buffer.from(name), body, Buffer.alloc(5_000, 0x55)]);
}

describe('a signature', () => {
  test.each([
    ['the type that was said', png, 'image/png', 'a.png', 'image/png'],
    ['another type', png, 'image/jpeg', 'a.jpg', 'image/png'],
    ['active content', png, 'text/html', 'a.html', 'image/png'],
    ['nothing said', jpeg, null, 'a', 'image/jpeg'],
    ['a picture named text', gif, 'text/plain', 'a.txt', 'image/gif'],
    ['a PDF that is all text so far', Buffer.from('%PDF-1.7\n1 0 obj'), 'text/html', 'a.html', 'application/pdf'],
    ['a calendar', Buffer.from('BEGIN:VCALENDAR\nVERSION:2.0\n'), null, 'a', 'text/calendar'],
    ['gzip', gzipSync('hello'), 'text/plain', 'a.txt', 'application/gzip'],
  ])('wins: %s', async (_, head, claimed, name, expected) => {
    expect(await detectMediaType(head, claimed, name)).toBe(expected);
  });

  test.each([
    [
      'zip, docx by claim',
      zipHead('word/a'),
      'application/vnd.openxmlformats-officedocument.wordprocessingml.document',
      'a',
    ],
    ['zip, odt by claim', zipHead('a'), 'application/vnd.oasis.opendocument.text', 'a'],
    ['zip, jar by claim', zipHead('a'), 'application/java-archive', 'a'],
    ['cfb, doc by claim', cfb, 'application/msword', 'a'],
    ['cfb, xls by claim', cfb, 'application/vnd.ms-excel', 'a'],
    ['xml, svg by claim', xmlSvg, 'image/svg+xml', 'a'],
    ['xml, xhtml by claim', xmlSvg, 'application/xhtml+xml', 'a'],
  ])('of a container is refined: %s', async (_, head, claimed, name) => {
    expect(await detectMediaType(head, claimed, name)).toBe(claimed);
  });

  test('of a container is refined by the extension when the claim does not help', async () => {
    expect(await detectMediaType(zipHead('a'), null, 'a.epub')).toBe('application/epub+zip');
    expect(await detectMediaType(cfb, 'application/octet-stream', 'a.doc')).toBe('application/msword');
    expect(await detectMediaType(xmlSvg, 'text/plain', 'a.svg')).toBe('image/svg+xml');
  });

  test.each([
    [zipHead('a'), 'image/png', 'a.png', 'application/zip'],
    [zipHead('a'), 'text/html', 'a.html', 'application/zip'],
    [cfb, 'application/pdf', 'a.pdf', 'application/x-cfb'],
    [xmlSvg, 'image/png', 'a.png', 'application/xml'],
  ])('of a container is not refined beyond it (%#)', async (head, claimed, name, expected) => {
    expect(await detectMediaType(head, claimed, name)).toBe(expected);
  });
});

describe('text', () => {
  test.each([
    ['said to be text', html, 'text/html', 'a', 'text/html'],
    ['parameters and case', html, ' Text/HTML ; charset="x;y"', 'a', 'text/html'],
    ['HTML said to be a PNG', html, 'image/png', 'a.png', 'text/plain'],
    ['HTML said to be a PNG, honest name', html, 'image/png', 'a.html', 'text/html'],
    ['by extension', Buffer.from('a,b\n1,2\n'), 'application/vnd.ms-excel', 'a.csv', 'text/csv'],
    ['TypeScript is no MPEG stream', Buffer.from('export {};\n'), 'video/mp2t', 'a.ts', 'text/plain'],
    ['no hint', Buffer.from('héllo'), null, 'README', 'text/plain'],
    ['a name without a dot is no extension', Buffer.from('hello'), null, 'html', 'text/plain'],
    ['JSON by suffix', Buffer.from('{}'), 'application/geo+json', 'a', 'application/geo+json'],
    ['SVG without a prolog', Buffer.from('<svg/>'), 'image/svg+xml', 'a', 'image/svg+xml'],
    ['begins like a BMP', Buffer.from('BMW is a maker of cars'), 'text/markdown', 'a', 'text/markdown'],
    ['begins like a program', Buffer.from('MZ and other initials'), null, 'a.txt', 'text/plain'],
    ['begins like a GIF', Buffer.from('GIF89a<script>alert(1)</script>'), 'image/gif', 'a.gif', 'text/plain'],
    ['begins like STL', Buffer.from('solid evidence was found'), null, 'a.md', 'text/markdown'],
    ['is STL', Buffer.from('solid cube\nfacet normal 0 0 0\n'), 'model/stl', 'a', 'model/stl'],
    ['cut within a character', Buffer.from('naïve').subarray(0, 3), null, 'a', 'text/plain'],
    ['with a byte order mark', Buffer.from('\ufeffa;b'), 'text/csv', 'a', 'text/csv'],
  ])('%s', async (_, head, claimed, name, expected) => {
    expect(await detectMediaType(head, claimed, name)).toBe(expected);
  });
});

describe('what is neither', () => {
  test.each([
    ['binary said to be a picture', Buffer.from([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]), 'image/png', 'a.png'],
    ['binary said to be text', Buffer.from('abc\0def'), 'text/plain', 'a.txt'],
    ['Latin-1', Buffer.from('caf\xe9 au lait', 'latin1'), 'text/plain', 'a.txt'],
    ['empty, said to be a picture', Buffer.alloc(0), 'image/png', 'a.png'],
  ])('is application/octet-stream: %s', async (_, head, claimed, name) => {
    expect(await detectMediaType(head, claimed, name)).toBe('application/octet-stream');
  });

  test('is what it is said to be when empty, if that is text', async () => {
    expect(await detectMediaType(Buffer.alloc(0), 'application/json', 'a')).toBe('application/json');
    expect(await detectMediaType(Buffer.alloc(0), null, 'a.css')).toBe('text/css');
  });
});

test.each([
  'text/html\r\nX: y',
  'text',
  '/html',
  'text/',
  'text/html/x',
  'text html',
  'text/ht ml',
  'text/*',
  'text/"x"',
  'тext/html',
  `text/${'x'.repeat(123)}`,
  '',
])('a malformed claim is ignored: %j', async (claimed) => {
  expect(await detectMediaType(Buffer.from('hello'), claimed, 'a')).toBe('text/plain');
});

test('any content, claim and name give a well-formed type, soon', async () => {
  const magic = [
    '',
    '504b0304',
    'd0cf11e0a1b11ae1',
    '1f8b08',
    '1a45dfa3',
    '0000002066747970',
    '49492a00',
    '494433',
    'efbbbf',
    '3026b2758e66cf11a6d9',
  ]
    .map((hex) => Buffer.from(hex, 'hex'))
    .concat(png, jpeg, gif, xmlSvg);
  const anything = fc.record({
    start: fc.constantFrom(...magic),
    rest: fc.uint8Array({ maxLength: 4_200 }),
    claimed: fc.option(fc.oneof(fc.string({ unit: 'binary' }), fc.constantFrom('image/png', 'text/html'))),
    name: fc.string({ unit: 'binary' }),
  });
  const property = fc.asyncProperty(anything, async ({ start, rest, claimed, name }) => {
    const before = performance.now();
    expect(await detectMediaType(Buffer.concat([start, rest]), claimed, name)).toMatch(
      /^[a-z0-9][^\s;,"]*\/[^\s;,"]+$/,
    );
    expect(performance.now() - before).toBeLessThan(2_000);
  });
  await fc.assert(property, { numRuns: 1_500 });
}, 60_000);

test('a gzip bomb is not unpacked', async () => {
  const bomb = gzipSync(gzipSync(Buffer.alloc(50_000_000)));
  expect(await detectMediaType(bomb, null, 'a.gz')).toBe('application/gzip');
});

test('HTML is never a picture, whatever is said', async () => {
  const property = fc.asyncProperty(fc.string({ unit: 'grapheme' }), fc.webPath(), async (noise, name) => {
    const type = await detectMediaType(Buffer.from(`${noise}<script>alert(1)</script>`), 'image/png', `${name}.png`);
    expect(type).not.toBe('image/png');
  });
  await fc.assert(property);
});

test.each([
  ['image/png', 'image'],
  ['image/svg+xml', 'image'],
  ['video/mp4', 'video'],
  ['audio/mpeg', 'audio'],
  ['application/ogg', 'audio'],
  ['text/plain', 'document'],
  ['application/json', 'document'],
  ['application/pdf', 'document'],
  ['application/vnd.openxmlformats-officedocument.wordprocessingml.document', 'document'],
  ['application/vnd.oasis.opendocument.text', 'document'],
  ['application/epub+zip', 'document'],
  ['application/zip', 'archive'],
  ['application/gzip', 'archive'],
  ['application/x-tar', 'archive'],
  ['application/java-archive', 'archive'],
  ['application/octet-stream', 'other'],
  ['font/woff2', 'other'],
  ['imagery/png', 'other'],
])('the class of %s is %s', (mediaType, expected) => {
  expect(fileClassOf(mediaType)).toBe(expected);
});
