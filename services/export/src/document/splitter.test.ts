import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { AppError } from '@stowage/common/errors';
import { Splitter } from './splitter.ts';
import { Unreadable } from './unreadable.ts';

const layout = { files: 'records', blobs: 'records', inner: { files: 'records' } } as const;

/** What a splitter makes of a text that comes in these chunks: values, and lists by their paths. */
function splitInto(chunks: readonly Buffer[]): unknown[] {
  const splitter = new Splitter(layout);
  const found: unknown[] = [];
  for (const chunk of chunks) {
    for (const piece of splitter.feed(chunk)) {
      const at = piece.path.join('/');
      if (piece.kind === 'value') found.push([at, JSON.parse(piece.bytes.toString())]);
      else if (piece.kind !== 'records') found.push([at, piece.kind]);
      else {
        const { batch } = piece;
        const texts = batch.starts.map((start, index) => batch.bytes.subarray(start, batch.ends[index]).toString());
        expect(JSON.parse(`[${batch.bytes.toString()}]`)).toEqual(texts.map((text) => JSON.parse(text)));
        found.push(...texts.map((text, index) => [`${at}/${batch.first + index}`, JSON.parse(text)]));
      }
    }
  }
  splitter.end();
  return found;
}

/** The same, told by parsing it whole. */
function parsedWhole(document: object, path: readonly string[] = []): unknown[] {
  return Object.entries(document).flatMap(([key, value]): unknown[] => {
    const own = [...path, key];
    const at = own.join('/');
    const isList = key === 'files' || (key === 'blobs' && path.length === 0);
    if (isList && Array.isArray(value)) {
      return [[at, 'list'], ...value.map((record, index) => [`${at}/${index}`, record]), [at, 'list_end']];
    }
    if (at === 'inner' && typeof value === 'object' && value !== null && !Array.isArray(value)) {
      return [[at, 'object'], ...parsedWhole(value, own)];
    }
    return [[at, value]];
  });
}

function cutAt(bytes: Buffer, places: readonly number[]): Buffer[] {
  const cuts = [
    0,
    ...places.map((place) => place % (bytes.length + 1)).sort((one, other) => one - other),
    bytes.length,
  ];
  return cuts.slice(1).map((end, index) => bytes.subarray(cuts[index], end));
}

const value = fc.jsonValue({ maxDepth: 4 });
const document = fc.record(
  {
    files: fc.oneof(fc.array(value), value),
    blobs: fc.array(value),
    inner: fc.oneof(fc.record({ files: fc.array(value), other: value }, { requiredKeys: [] }), value),
    'quo"te \\ 😀': value,
  },
  { requiredKeys: [] },
);

test('finds the same in a document however its bytes are cut', () => {
  fc.assert(
    fc.property(document, fc.array(fc.nat()), fc.constantFrom(0, 1, 2), (whole, places, indent) => {
      const bytes = Buffer.from(JSON.stringify(whole, null, indent));
      const expected = parsedWhole(JSON.parse(bytes.toString()));
      expect(splitInto([bytes])).toEqual(expected);
      expect(splitInto(cutAt(bytes, places))).toEqual(expected);
    }),
    { numRuns: 500 },
  );
});

test('finds the same where each byte comes alone', () => {
  const text = '\ufeff{"a":"\\"\\\\","files":[{"n\\"":[1,{"}":"]"}]} , "x\\\\",1e3 ,null],"inner":{"files":[]}} \n';
  const bytes = [...Buffer.from(text)].map((byte) => Buffer.from([byte]));
  expect(splitInto(bytes)).toEqual(parsedWhole(JSON.parse(text.slice(1))));
});

describe('what is no document', () => {
  const outcome = (text: string): string => {
    try {
      splitInto([Buffer.from(text)]);
      return 'taken';
    } catch (error) {
      if (error instanceof Unreadable) return `${error.finding.code} ${error.finding.pointer}`;
      if (error instanceof AppError) return error.code;
      if (error instanceof SyntaxError) return 'no JSON within';
      throw error;
    }
  };

  test.each([
    ['', 'validation_failed'],
    [' \n', 'validation_failed'],
    ['[]', 'validation_failed'],
    ['null', 'validation_failed'],
    ['PK\u0003\u0004', 'validation_failed'],
    ['{]', 'validation_failed'],
    ['{"a" 1}', 'validation_failed'],
    ['{"a":1,}', 'validation_failed'],
    ['{a:1}', 'validation_failed'],
    ['{"a":1 2}', 'validation_failed'],
    ['{"files":[1 2]}', 'validation_failed'],
    ['{"files":[{]}', 'validation_failed'],
    ['{"files":[[}]}', 'validation_failed'],
    ['{"files":[1}', 'validation_failed'],
    ['{"\\x":1}', 'validation_failed'],
    ['{"files":[1,]}', 'no JSON within'],
    ['{"files":[,1]}', 'no JSON within'],
    ['{"a":}', 'no JSON within'],
    ['{', 'truncated '],
    ['{"files":[{"a":1},{"b', 'truncated /files/1'],
    ['{"files":[1', 'truncated /files/0'],
    ['{"format":"sto', 'truncated /format'],
    ['{"inner":{"files":[', 'truncated /inner/files/0'],
    ['{} x', 'trailing_bytes '],
    ['{}{}', 'trailing_bytes '],
    [`{"a":${'['.repeat(100_000)}`, 'too_deep /a'],
    [`{"files":[${'{"a":'.repeat(33)}`, 'too_deep /files/0'],
    [`{"files":[[${'1,'.repeat(10_001)}`, 'too_large /files/0'],
    [`{"a":"${'x'.repeat(2 ** 24)}`, 'too_large /a'],
    [`{"${'x'.repeat(2_000)}":1}`, 'too_large '],
  ])('%.40s', (text, expected) => {
    expect(outcome(text)).toBe(expected);
  });
});
