import { beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { expectStatus, sha256 } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { expectContentHeaders, parseDisposition } from '@stowage/tests/support/content';
import { admin } from '@stowage/tests/support/contract';
import { expectProblem } from '@stowage/tests/support/problems';
import { Random } from '@stowage/tests/support/random';
import { uniqueName } from '@stowage/tests/support/system';

const mebibyte = 1024 * 1024;
const size = 5 * mebibyte + 3;
const views = ['download', 'stream'] as const;
const bytes = randomBytes(size);
const smallBytes = randomBytes(1_000);

let client: Client;
let large: Json;
let small: Json;
let empty: Json;

beforeAll(async () => {
  client = await admin();
  const directory = (await client.makeDirectory(uniqueName('ranges')))['id'];
  large = await client.putFile('large', bytes, { directory });
  small = await client.putFile('small', smallBytes, { directory });
  empty = await client.putFile('empty', '', { directory });
});

function get(
  file: Json,
  range: string,
  view: (typeof views)[number] = 'download',
  headers: Record<string, string> = {},
): Promise<Answer> {
  return client.get(`/api/files/${file['id']}/${view}`, { range, ...headers });
}

/** Expects the bytes from `first` to `last`, both included. */
function expectPart(answer: Answer, first: number, last: number, whole = bytes): void {
  expectStatus(answer, 206);
  expect(answer.headers.get('content-range')).toBe(`bytes ${first}-${last}/${whole.length}`);
  expect(answer.headers.get('content-length')).toBe(String(last - first + 1));
  expect(answer.bytes).toHaveLength(last - first + 1);
  expect(sha256(answer.bytes)).toBe(sha256(whole.subarray(first, last + 1)));
}

function expectAll(answer: Answer, whole: Buffer): void {
  expectStatus(answer, 200);
  expect(answer.headers.has('content-range')).toBe(false);
  expect(answer.headers.get('content-length')).toBe(String(whole.length));
  expect(sha256(answer.bytes)).toBe(sha256(whole));
}

describe('one range', () => {
  const last = size - 1;
  const cases: [what: string, range: string, first: number, last: number][] = [
    ['the first byte', 'bytes=0-0', 0, 0],
    ['the last byte', `bytes=${last}-${last}`, last, last],
    ['the last byte, counted from the end', 'bytes=-1', last, last],
    ['the last byte, with an open end', `bytes=${last}-`, last, last],
    ['a suffix', 'bytes=-1000', size - 1000, last],
    ['a suffix over a chunk edge', `bytes=-${mebibyte}`, size - mebibyte, last],
    ['a suffix of all', `bytes=-${size}`, 0, last],
    ['a suffix longer than all', `bytes=-${size + 1}`, 0, last],
    ['all with an open end', 'bytes=0-', 0, last],
    ['an open end', `bytes=${3 * mebibyte + 7}-`, 3 * mebibyte + 7, last],
    ['an end past the end', `bytes=${last - 9}-${size + 100}`, last - 9, last],
    ['the whole of it', `bytes=0-${last}`, 0, last],
    ['the first chunk', `bytes=0-${mebibyte - 1}`, 0, mebibyte - 1],
    ['a chunk in the middle', `bytes=${2 * mebibyte}-${3 * mebibyte - 1}`, 2 * mebibyte, 3 * mebibyte - 1],
    ['the last byte of a chunk', `bytes=${mebibyte - 1}-${mebibyte - 1}`, mebibyte - 1, mebibyte - 1],
    ['the first byte of a chunk', `bytes=${mebibyte}-${mebibyte}`, mebibyte, mebibyte],
    ['two bytes over a chunk edge', `bytes=${mebibyte - 1}-${mebibyte}`, mebibyte - 1, mebibyte],
    ['a byte more than a chunk at both ends', `bytes=${mebibyte - 1}-${2 * mebibyte}`, mebibyte - 1, 2 * mebibyte],
    ['three chunk edges', `bytes=${mebibyte + 5}-${4 * mebibyte + 5}`, mebibyte + 5, 4 * mebibyte + 5],
    ['the last, short chunk', `bytes=${5 * mebibyte}-`, 5 * mebibyte, last],
    ['the edge of the last chunk', `bytes=${5 * mebibyte - 1}-${5 * mebibyte}`, 5 * mebibyte - 1, 5 * mebibyte],
    ['an end of 2^63 - 1', 'bytes=5242880-9223372036854775807', 5 * mebibyte, last],
    ['an end of 2^64', 'bytes=5242880-18446744073709551616', 5 * mebibyte, last],
    ['an end of 400 digits', `bytes=5242880-${'9'.repeat(400)}`, 5 * mebibyte, last],
    ['a suffix of 2^63', 'bytes=-9223372036854775808', 0, last],
    ['leading zeros', 'bytes=00000000000000000000000-0000000000000000000000000004', 0, 4],
    ['the unit in capitals', 'BYTES=1-2', 1, 2],
    ['white space around', 'bytes= 1-2 ', 1, 2],
  ];

  test.each(cases)('%s: %s', async (_what, range, first, end) => {
    for (const view of views) expectPart(await get(large, range, view), first, end);
  });

  test('has the headers of the whole', async () => {
    for (const view of views) {
      const { headers } = expectStatus(await get(large, 'bytes=1-2', view), 206);
      expectContentHeaders(headers, { sha256: large['sha256'], mediaType: 'application/octet-stream' });
      expect(parseDisposition(headers.get('content-disposition')).filename).toBe('large');
      const whole = await client.call('HEAD', `/api/files/${large['id']}/${view}`);
      expect(headers.get('etag')).toBe(whole.headers.get('etag'));
    }
  });

  test('wherever it lies holds the right bytes', async () => {
    const random = new Random(7);
    for (let n = 0; n < 60; n += 1) {
      const first = random.integer(0, size - 1);
      const end = Math.min(size - 1, first + random.integer(0, random.chance(0.5) ? 50 : 2 * mebibyte));
      expectPart(await get(large, `bytes=${first}-${end}`), first, end);
    }
  });

  test('of a small file', async () => {
    expectPart(await get(small, 'bytes=10-19'), 10, 19, smallBytes);
    expectPart(await get(small, 'bytes=-5'), 995, 999, smallBytes);
    expectPart(await get(small, 'bytes=999-'), 999, 999, smallBytes);
  });

  test('put together, all of them are the file', async () => {
    const parts: Buffer[] = [];
    for (let first = 0; first < size; first += 700_001) {
      parts.push(expectStatus(await get(large, `bytes=${first}-${first + 700_000}`), 206).bytes);
    }
    expect(sha256(Buffer.concat(parts))).toBe(large['sha256']);
  });
});

describe('a range outside', () => {
  const cases = [
    `bytes=${size}-`,
    `bytes=${size}-${size}`,
    `bytes=${size + 1}-${size + 2}`,
    'bytes=-0',
    'bytes=9223372036854775807-',
    'bytes=9223372036854775808-9223372036854775809',
    'bytes=18446744073709551615-',
    'bytes=18446744073709551616-',
    `bytes=${'9'.repeat(400)}-`,
  ];

  test.each(cases)('%s is 416 and tells the size', async (range) => {
    for (const view of views) {
      const answer = await get(large, range, view);
      expectProblem(answer, 416, 'range_not_satisfiable');
      expect(answer.headers.get('content-range')).toBe(`bytes */${size}`);
    }
  });
});

describe('of an empty file', () => {
  test.each(['bytes=0-0', 'bytes=0-', 'bytes=-1', 'bytes=-0', 'bytes=5-9'])('%s is 416', async (range) => {
    const answer = await get(empty, range);
    expectProblem(answer, 416, 'range_not_satisfiable');
    expect(answer.headers.get('content-range')).toBe('bytes */0');
  });

  test.each(['bytes=1-0', 'bytes=', 'bytes=0-0,1-1'])('%s is 200 with nothing', async (range) => {
    expectAll(await get(empty, range), Buffer.alloc(0));
  });
});

describe('all of it comes', () => {
  test.each([
    'bytes=0-0,2-3',
    'bytes=0-,0-',
    'bytes=0-0, 999-999',
    'bytes=5-9,0-4',
    'bytes=-1,-1',
    'bytes=0-999,0-999,0-999',
    'bytes=2000-,0-0',
  ])('for several ranges: %s', async (range) => {
    for (const view of views) expectAll(await get(small, range, view), smallBytes);
  });

  test.each([
    ['10,000 open ones', `bytes=${'0-,'.repeat(9_999)}0-`],
    ['10,000 suffixes', `bytes=${'-1,'.repeat(9_999)}-1`],
    [
      '5,000 single bytes, backwards',
      `bytes=${Array.from({ length: 5_000 }, (_, n) => `${999 - (n % 1000)}-`).join(',')}`,
    ],
  ])('for %s, in good time (T26)', async (_what, range) => {
    const start = performance.now();
    expectAll(await get(small, range), smallBytes);
    expect(performance.now() - start).toBeLessThan(2_000);
  });

  test.each([
    'bytes',
    'bytes=',
    'bytes=-',
    'bytes=a-b',
    'bytes=5',
    'bytes=--5',
    'bytes=5--9',
    'bytes=+1-2',
    'bytes=1-+2',
    'bytes=1.5-2',
    'bytes=1e1-20',
    'bytes=0x0-0x9',
    'bytes=9-1',
    'bytes=999-0',
    'bytes:0-1',
    'bytes 0-1',
    'bytes=0-1;',
    'bytes=0-1/1000',
    'items=0-1',
    'none',
    '0-1',
    '=0-1',
    'bytes=18446744073709551616-1',
    'x'.repeat(10_000),
  ])('for what is no range: %s', async (range) => {
    for (const view of views) expectAll(await get(small, range, view), smallBytes);
  });

  test('for HEAD, which knows no ranges', async () => {
    for (const range of ['bytes=0-0', 'bytes=99999-']) {
      const answer = await client.call('HEAD', `/api/files/${small['id']}/download`, { headers: { range } });
      expect([answer.status, answer.headers.get('content-length'), answer.headers.get('content-range')]).toEqual([
        200,
        '1000',
        null,
      ]);
    }
  });
});

test('a Range header longer than any request may have is refused as a whole (T26)', async () => {
  const answer = await get(small, `bytes=${'0-0,'.repeat(10_000)}0-0`);
  expectProblem(answer, 431, 'headers_too_large');
});
