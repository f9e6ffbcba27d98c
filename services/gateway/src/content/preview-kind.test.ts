import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { previewKind, textPreview } from './preview-kind.ts';

describe('previewKind', () => {
  test.each(['png', 'jpeg', 'gif', 'webp', 'avif', 'heif', 'tiff'])('image/%s is a picture', (name) => {
    expect(previewKind(`image/${name}`, 'a')).toBe('image');
  });

  test.each([
    'text/plain',
    'text/csv',
    'text/markdown',
    'text/html',
    'text/x-rust',
    'TEXT/PLAIN; charset=utf-8',
    'application/json',
    'application/geo+json',
    'application/xml',
    'application/toml',
    'application/x-yaml',
    'application/sql',
    'application/typescript',
    'application/x-sh',
  ])('%s is text', (mediaType) => {
    expect(previewKind(mediaType, 'a')).toBe('text');
  });

  test.each([
    ['image/svg+xml', 'a.svg'],
    ['image/svg+xml', 'a.txt'],
    ['image/x-canon-cr2', 'a.txt'],
    ['application/pdf', 'a.pdf'],
    ['application/zip', 'a.txt'],
    ['application/octet-stream', 'a.bin'],
    ['application/octet-stream', 'txt'],
    ['application/octet-stream', 'a.svg'],
    ['application/octet-stream', 'a.png'],
    ['video/mp4', 'a.mp4'],
    ['', ''],
  ])('%s named %s has none', (mediaType, name) => {
    expect(previewKind(mediaType, name)).toBeNull();
  });

  test('goes by the name where the type tells nothing', () => {
    expect(previewKind('application/octet-stream', 'Latin-1.TXT')).toBe('text');
  });
});

describe('textPreview', () => {
  test('gives a short text whole, without its byte order mark', () => {
    expect(textPreview(Buffer.from('\ufeffhéllo 🎉\r\n')).toString()).toBe('héllo 🎉\r\n');
    expect(textPreview(Buffer.alloc(0))).toHaveLength(0);
  });

  test.each([1, 2, 3, 4])('never ends within a character (%i bytes before the cut)', (before) => {
    const bytes = Buffer.from('x'.repeat(65_536 - before) + '🎉🎉');
    const expected = 'x'.repeat(65_536 - before) + (before === 4 ? '🎉' : '');
    expect(textPreview(bytes).toString()).toBe(expected);
    expect(textPreview(bytes.subarray(0, 65_536)).toString()).toBe(expected);
  });

  test('replaces what is no UTF-8', () => {
    expect(textPreview(Buffer.from('caf\xe9!', 'latin1')).toString()).toBe('caf\ufffd!');
    expect(textPreview(Buffer.from([0x61, 0xf0, 0x9f])).toString()).toBe('a\ufffd');
  });

  test('refuses binary content', () => {
    expect(() => textPreview(Buffer.from('a\0b'))).toThrow(expect.objectContaining({ code: 'unsupported_media_type' }));
  });

  test('is valid UTF-8 and bounded, whatever comes in', () => {
    const bytes = fc.uint8Array({ maxLength: 70_000, size: 'max', min: 1 });
    const property = fc.property(bytes, (input) => {
      const output = textPreview(Buffer.from(input));
      expect(() => new TextDecoder('utf-8', { fatal: true }).decode(output)).not.toThrow();
      expect(output.length).toBeLessThanOrEqual(3 * 65_536);
    });
    fc.assert(property, { numRuns: 30 });
  });
});
