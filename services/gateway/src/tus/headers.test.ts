import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { bodyLength, checkBodyType, uploadChecksum, uploadLength, uploadOffset } from './headers.ts';
import { parseMetadata } from './metadata.ts';

const refused = expect.objectContaining({ code: 'validation_failed' });
const base64 = (text: string): string => Buffer.from(text).toString('base64');

describe('numbers in headers', () => {
  test('any safe whole number passes', () => {
    fc.assert(fc.property(fc.maxSafeNat(), (n) => uploadOffset({ 'upload-offset': String(n) }) === n));
  });

  test.each([
    '',
    '-1',
    '+1',
    '01',
    '1.0',
    '0x10',
    '1e3',
    ' 5',
    '5 ',
    '5, 5',
    '9007199254740993',
    '99999999999999999999',
    '٣',
  ])('"%s" is none', (value) => {
    expect(() => uploadOffset({ 'upload-offset': value })).toThrow(refused);
    expect(() => uploadLength({ 'upload-length': value })).toThrow(refused);
  });
});

describe('the length of an upload', () => {
  test('is told, or deferred by exactly 1, and never both', () => {
    expect(uploadLength({ 'upload-length': '0' })).toBe(0);
    expect(uploadLength({ 'upload-defer-length': '1' })).toBeNull();
    expect(() => uploadLength({})).toThrow(refused);
    expect(() => uploadLength({ 'upload-defer-length': '0' })).toThrow(refused);
    expect(() => uploadLength({ 'upload-length': '1', 'upload-defer-length': '1' })).toThrow(refused);
  });

  test('of a chunked body is unknown', () => {
    expect(bodyLength({ 'transfer-encoding': 'chunked' })).toBeNull();
    expect(bodyLength({ 'content-length': '12' })).toBe(12);
    expect(bodyLength({})).toBe(0);
  });
});

test('bytes come as application/offset+octet-stream only', () => {
  expect(() => checkBodyType({ 'content-type': 'Application/Offset+Octet-Stream; x=1' })).not.toThrow();
  expect(() => checkBodyType({ 'content-type': 'application/octet-stream' })).toThrow(
    expect.objectContaining({ code: 'unsupported_media_type' }),
  );
  expect(() => checkBodyType({})).toThrow();
});

describe('a checksum', () => {
  test('of a known algorithm with a digest of its length passes', () => {
    expect(uploadChecksum({ 'upload-checksum': `sha1 ${Buffer.alloc(20).toString('base64')}` })?.digest).toHaveLength(
      20,
    );
    expect(uploadChecksum({})).toBeNull();
  });

  test.each([
    'md5 AAAA',
    'sha1',
    'sha1 AAAA',
    'sha1 !!!!',
    `sha256 ${Buffer.alloc(20).toString('base64')}`,
    `SHA1 ${Buffer.alloc(20).toString('base64')}`,
  ])('"%s" is refused', (value) => expect(() => uploadChecksum({ 'upload-checksum': value })).toThrow(refused));
});

describe('metadata', () => {
  test('is read whatever the text', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', minLength: 1, maxLength: 200 }), (filename) => {
        expect(parseMetadata({ 'upload-metadata': `filename ${base64(filename)},other,empty ` }).filename).toBe(
          Buffer.from(filename).toString(),
        );
      }),
    );
  });

  test.each([
    ['a key twice', `filename ${base64('a')},filename ${base64('b')}`],
    ['a value that is not base64', 'filename *'],
    ['base64 that does not end cleanly', 'filename YQ'],
    ['three words', 'filename YQ== YQ=='],
    ['an empty pair', `filename ${base64('a')},,x`],
    ['17 pairs', Array.from({ length: 17 }, (_, n) => `k${n} YQ==`).join(',')],
    ['more than 8 KiB', `filename ${base64('a'.repeat(9000))}`],
    ['a value that is not UTF-8', `filename ${Buffer.from([0xff]).toString('base64')}`],
    ['a directory that is no id', `directory_id ${base64('../etc')}`],
    ['a class that is none', `file_class ${base64('Ünfug')}`],
    ['a sha256 that is too short', `sha256 ${base64('abcd')}`],
    ['an unknown on_conflict', `on_conflict ${base64('overwrite')}`],
  ])('with %s is refused', (_name, header) => {
    expect(() => parseMetadata({ 'upload-metadata': header })).toThrow(refused);
  });

  test('keys such as __proto__ are keys like any other', () => {
    expect(parseMetadata({ 'upload-metadata': `__proto__ ${base64('x')},filename ${base64('a')}` }).filename).toBe('a');
  });
});
