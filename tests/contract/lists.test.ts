import { beforeAll, describe, expect, test } from '@jest/globals';
import { expectStatus } from '@stowage/tests/support/client';
import type { Client } from '@stowage/tests/support/client';
import { admin } from '@stowage/tests/support/contract';
import { expectProblem, pointersOf } from '@stowage/tests/support/problems';
import { unknownId } from '@stowage/tests/support/routes';
import { uniqueName } from '@stowage/tests/support/system';

const lists = [
  '/api/directories/root/children',
  '/api/directories/root/children?sort=created_at',
  '/api/directories/root/children?sort=size&order=desc',
  '/api/files/recycle-bin',
  '/api/users',
  '/api/jobs',
  '/api/backends',
];
let root: Client;

beforeAll(async () => {
  root = await admin();
});

function withQuery(list: string, query: string): string {
  return `${list}${list.includes('?') ? '&' : '?'}${query}`;
}

describe.each(lists)('%s', (list) => {
  test('answers items and next_cursor', async () => {
    const { json } = expectStatus(await root.get(list), 200);
    expect(json).toMatchObject({ items: expect.any(Array) });
    expect(json['next_cursor'] === null || typeof json['next_cursor'] === 'string').toBe(true);
    expect(json['items'].length).toBeLessThanOrEqual(100);
  });

  test.each(['limit=1', 'limit=1000'])('takes %s', async (query) => {
    const { json } = expectStatus(await root.get(withQuery(list, query)), 200);
    expect(json['items'].length).toBeLessThanOrEqual(Number(query.slice(6)));
  });

  test.each([
    'limit=0',
    'limit=1001',
    'limit=-1',
    'limit=abc',
    'limit=1.5',
    'limit=',
    'limit=1e9',
    'limit=NaN',
    'limit=1%00',
    'limit=5&limit=6',
    'limit[]=5',
    'limit=true',
    'limit=9007199254740993',
  ])('refuses %s', async (query) => {
    const problem = expectProblem(await root.get(withQuery(list, query)), 400, 'validation_failed');
    expect(pointersOf(problem)[0]).toMatch(/^\?limit/);
  });

  test('refuses cursors that it did not give', async () => {
    const far = '9999-12-31T23:59:59.999Z';
    const values = [
      'x',
      '',
      'a\u0000b',
      '-1',
      '1e999',
      unknownId,
      far,
      `${far}\u0000`,
      "'; select 1",
      '\ud800',
      '999999999999999999999',
    ];
    const forged = [
      'nonsense',
      '!!!',
      '%00',
      Buffer.from('null').toString('base64url'),
      Buffer.from('{}').toString('base64url'),
      Buffer.from('[]').toString('base64url'),
      Buffer.from('[1]').toString('base64url'),
      Buffer.from('[["x"]]').toString('base64url'),
      ...values.flatMap((value) => [0, 1, 2, 3, 4].map((n) => encode(Array.from({ length: n }, () => value)))),
      encode(['directory', 'a\u0000b']),
      encode(['file', 'a\u0000b']),
      encode(['nonsense', 'a']),
      encode(['file', 'not a time', unknownId]),
      encode(['file', far, 'not an id']),
      encode(['file', 'not a number', unknownId]),
    ];
    for (const cursor of new Set(forged)) {
      const answer = await root.get(withQuery(list, `cursor=${cursor}`));
      // A made-up cursor that is well-formed for this list names a place in it: an answer like any other.
      if (answer.status !== 200) expectProblem(answer, 400, 'validation_failed');
    }
    for (const cursor of forged.slice(0, 8)) {
      const problem = expectProblem(await root.get(withQuery(list, `cursor=${cursor}`)), 400, 'validation_failed');
      expect(pointersOf(problem)).toEqual(['?cursor']);
    }
  });

  test('refuses two cursors and one that is too long', async () => {
    expectProblem(await root.get(withQuery(list, 'cursor=a&cursor=b')), 400, 'validation_failed');
    expectProblem(await root.get(withQuery(list, `cursor=${'a'.repeat(4_000)}`)), 400, 'validation_failed');
  });

  test('refuses parameters that it does not know', async () => {
    expectProblem(await root.get(withQuery(list, 'offset=10')), 400, 'validation_failed');
  });
});

function encode(values: string[]): string {
  return Buffer.from(JSON.stringify(values)).toString('base64url');
}

describe('Pages', () => {
  test('a cursor goes on where its page ended, though rows came and went meanwhile', async () => {
    const { id } = await root.makeDirectory(uniqueName('pages'));
    const made = new Map<string, string>();
    for (const name of ['b', 'd', 'f', 'h']) made.set(name, (await root.makeDirectory(name, id))['id']);
    const first = expectStatus(await root.get(`/api/directories/${id}/children?limit=2`), 200).json;
    expect(first['items'].map((item: { name: string }) => item.name)).toEqual(['b', 'd']);
    for (const name of ['a', 'c', 'e']) await root.makeDirectory(name, id);
    expectStatus(await root.delete(`/api/directories/${made.get('d')}`), 200);
    const second = expectStatus(
      await root.get(`/api/directories/${id}/children?limit=2&cursor=${first['next_cursor']}`),
      200,
    ).json;
    expect(second['items'].map((item: { name: string }) => item.name)).toEqual(['e', 'f']);
    const third = expectStatus(
      await root.get(`/api/directories/${id}/children?limit=2&cursor=${second['next_cursor']}`),
      200,
    ).json;
    expect(third['items'].map((item: { name: string }) => item.name)).toEqual(['h']);
    expect(third['next_cursor']).toBeNull();
  });

  test('a page that is just full is the last one where nothing follows', async () => {
    const { id } = await root.makeDirectory(uniqueName('pages'));
    for (const name of ['a', 'b']) await root.makeDirectory(name, id);
    const { json } = expectStatus(await root.get(`/api/directories/${id}/children?limit=2`), 200);
    expect(json['next_cursor']).toBeNull();
  });
});
