import { createHash } from 'node:crypto';
import { validateHeaderValue } from 'node:http';
import { describe, expect, test } from '@jest/globals';
import { parse } from 'content-disposition';
import fc from 'fast-check';
import { contentHeaders } from './content-headers.ts';

const sha256 = createHash('sha256').update('hello').digest();
const updatedAt = new Date('2026-11-21T04:05:06.789Z');

function headersOf(mediaType: string, disposition: 'download' | 'stream', name = 'a.bin'): Record<string, string> {
  return contentHeaders({ name, mediaType, sha256, updatedAt }, disposition);
}

function kindOf(headers: Record<string, string>): string {
  return headers['content-disposition']?.split(';')[0] ?? '';
}

describe('contentHeaders', () => {
  test('says what the content is', () => {
    expect(headersOf('image/png', 'stream', 'a.png')).toEqual({
      'content-type': 'image/png',
      'content-disposition': 'inline; filename=a.png',
      'content-security-policy': "default-src 'none'; frame-ancestors 'self'",
      'x-frame-options': 'SAMEORIGIN',
      'cross-origin-resource-policy': 'same-origin',
      'x-content-type-options': 'nosniff',
      'cache-control': 'private, no-cache',
      'accept-ranges': 'bytes',
      etag: '"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"',
      'repr-digest': 'sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:',
      'last-modified': 'Sat, 21 Nov 2026 04:05:06 GMT',
    });
    expect(contentHeaders({ name: 'a', mediaType: 'image/png', sha256 }, 'stream')).not.toHaveProperty('last-modified');
  });

  test.each([
    'image/jpeg',
    'image/gif',
    'image/webp',
    'audio/mpeg',
    'video/mp4',
    'video/x-matroska',
    'application/pdf',
  ])('%s is shown in place on stream, without a sandbox', (mediaType) => {
    const headers = headersOf(mediaType, 'stream');
    expect(kindOf(headers)).toBe('inline');
    expect(headers['content-security-policy']).not.toContain('sandbox');
    expect(headers['content-type']).toBe(mediaType);
  });

  test('plain text is shown in place, in UTF-8 and sandboxed', () => {
    const headers = headersOf('text/plain', 'stream');
    expect(kindOf(headers)).toBe('inline');
    expect(headers['content-type']).toBe('text/plain; charset=utf-8');
    expect(headers['content-security-policy']).toBe("default-src 'none'; frame-ancestors 'self'; sandbox");
  });

  test.each([
    'image/svg+xml',
    'text/html',
    'application/xhtml+xml',
    'text/xml',
    'application/xml',
    'application/rss+xml',
    'application/mathml+xml',
    'text/javascript',
    'application/javascript',
    'text/css',
    'text/csv',
    'text/vtt',
    'text/cache-manifest',
    'application/json',
    'application/x-shockwave-flash',
    'application/wasm',
    'multipart/x-mixed-replace',
    'message/rfc822',
    'video/x+xml',
    'image/x-unheard-of',
    'application/octet-stream',
  ])('%s is an attachment in a sandbox on stream', (mediaType) => {
    const headers = headersOf(mediaType, 'stream');
    expect(kindOf(headers)).toBe('attachment');
    expect(headers['content-security-policy']).toMatch(/; sandbox$/);
    expect(headers['x-content-type-options']).toBe('nosniff');
  });

  test.each(['image/png', 'text/plain', 'application/pdf', 'text/html'])(
    '%s is an attachment on download',
    (mediaType) => {
      expect(kindOf(headersOf(mediaType, 'download'))).toBe('attachment');
    },
  );

  test.each(['text/html\r\nX-Evil: 1', 'text/html; charset=utf-7', 'image/png\ntext/html', 'TEXT/HTML', 'x', ''])(
    'a stored type that is none (%j) is served as bytes',
    (mediaType) => {
      const headers = headersOf(mediaType, 'stream');
      expect(headers['content-type']).toBe('application/octet-stream');
      expect(kindOf(headers)).toBe('attachment');
    },
  );
});

describe('the file name', () => {
  const name = (value: string): string => headersOf('image/png', 'download', value)['content-disposition'] ?? '';

  test.each([
    ['plain.txt', 'plain.txt'],
    ['with space.txt', 'with space.txt'],
    ['a "quoted" name.txt', 'a _quoted_ name.txt'],
    ['back\\slash.txt', 'back_slash.txt'],
    ['semi;colon=equals,comma.txt', 'semi;colon=equals,comma.txt'],
    ['100%41.txt', '100_41.txt'],
    ["it's (1)*.txt", "it's (1)*.txt"],
    ['größe.pdf', 'gr__e.pdf'],
    ['🎉👩‍👩‍👧.png', '______.png'],
    ['שלום.txt', '____.txt'],
    ['日本語.txt', '___.txt'],
    ['<script>alert(1)</script>', '<script>alert(1)<_script>'],
    ['é'.repeat(127), '_'.repeat(127)],
    ['🎉'.repeat(63), '_'.repeat(63)],
    ['x'.repeat(255), 'x'.repeat(255)],
  ])('%s comes through, with a plain fallback', (value, fallback) => {
    expect(parse(name(value)).parameters['filename']).toBe(value);
    expect(parse(name(value), { extended: false }).parameters['filename']).toBe(fallback);
  });

  test.each([
    ['a\r\nSet-Cookie: x=1', 'a__Set-Cookie: x=1'],
    ['a\0b\x7f\x85c', 'a_b__c'],
    ['evil\u202egpj.exe', 'evil_gpj.exe'],
    ['lone \ud800 surrogate', 'lone \ufffd surrogate'],
    ['a\u2028b', 'a_b'],
  ])('%j loses what is unsafe', (value, expected) => {
    expect(parse(name(value)).parameters['filename']).toBe(expected);
  });

  test('of any kind makes a header of printable ASCII that a strict parser reads back', () => {
    const grammar =
      /^attachment; filename=("[^"\\]*"|[!#$&'*+.^_`|~0-9A-Za-z-]+)(; filename\*=UTF-8''(%[0-9A-F]{2}|[!#$&+.^_`|~0-9A-Za-z-])+)?$/;
    const property = fc.property(fc.string({ unit: 'binary', minLength: 1 }), (value) => {
      const header = name(value);
      expect(header).toMatch(/^[\x20-\x7e]*$/);
      expect(header).toMatch(grammar);
      expect(() => validateHeaderValue('content-disposition', header)).not.toThrow();
    });
    fc.assert(property, { numRuns: 2_000 });
  });
});
