import { beforeAll, describe, expect, test } from '@jest/globals';
import { expectStatus } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { admin, baseUrl } from '@stowage/tests/support/contract';
import { expectProblem } from '@stowage/tests/support/problems';
import { sendOdd } from '@stowage/tests/support/odd-http';
import { unknownId } from '@stowage/tests/support/routes';
import { uniqueName } from '@stowage/tests/support/system';

let root: Client;
let home: string;

beforeAll(async () => {
  root = await admin();
  home = (await root.makeDirectory(uniqueName('conditions')))['id'];
});

/** The two kinds of things that have versions, and how one is made. */
const kinds = [
  {
    kind: 'directory',
    base: '/api/directories',
    make: () => root.makeDirectory(uniqueName(), home),
    target: 'parent_id',
  },
  {
    kind: 'file',
    base: '/api/files',
    make: () => root.putFile(uniqueName(), 'x', { directory: home }),
    target: 'directory_id',
  },
];

describe.each(kinds)('If-Match on a $kind', ({ base, make, target }) => {
  const get = (made: Json): Promise<Answer> => root.get(`${base}/${made['id']}`);
  const rename = (made: Json, ifMatch: string, name = uniqueName()): Promise<Answer> =>
    root.post(`${base}/${made['id']}/rename`, { name }, { 'if-match': ifMatch });

  test('its ETag is its version, on reading and on each change', async () => {
    const made = await make();
    const read = expectStatus(await get(made), 200);
    expect(read.headers.get('etag')).toBe(`"${read.json['version']}"`);
    const renamed = expectStatus(await rename(made, `"${made['version']}"`), 200);
    expect(renamed.json['version']).toBeGreaterThan(made['version']);
    expect(renamed.headers.get('etag')).toBe(`"${renamed.json['version']}"`);
    expect((await get(made)).headers.get('etag')).toBe(renamed.headers.get('etag'));
  });

  test('the version of before is 412 and changes nothing', async () => {
    const made = await make();
    const { json: now } = expectStatus(await rename(made, `"${made['version']}"`), 200);
    const stale = `"${made['version']}"`;
    const headers = { 'if-match': stale };
    const other = await root.makeDirectory(uniqueName(), home);
    expectProblem(await rename(made, stale), 412, 'precondition_failed');
    expectProblem(
      await root.post(`${base}/${made['id']}/move`, { [target]: other['id'] }, headers),
      412,
      'precondition_failed',
    );
    expectProblem(await root.delete(`${base}/${made['id']}`, headers), 412, 'precondition_failed');
    const { placement: _placement, ...after } = expectStatus(await get(made), 200).json;
    expect(after).toEqual(now);
  });

  test('the present version lets each change through', async () => {
    const made = await make();
    const tag = async (): Promise<Record<string, string>> => ({
      'if-match': (await get(made)).headers.get('etag') ?? '',
    });
    const other = await root.makeDirectory(uniqueName(), home);
    expectStatus(await root.post(`${base}/${made['id']}/rename`, { name: uniqueName() }, await tag()), 200);
    expectStatus(await root.post(`${base}/${made['id']}/move`, { [target]: other['id'] }, await tag()), 200);
    expectStatus(await root.delete(`${base}/${made['id']}`, await tag()), 200);
    expectProblem(
      await root.post(`${base}/${made['id']}/restore`, {}, { 'if-match': '"0"' }),
      412,
      'precondition_failed',
    );
    expectStatus(await root.post(`${base}/${made['id']}/restore`, {}, await tag()), 200);
    expectStatus(await root.delete(`${base}/${made['id']}`, await tag()), 200);
    expectProblem(
      await root.delete(`${base}/${made['id']}?permanent=true`, { 'if-match': '"0"' }),
      412,
      'precondition_failed',
    );
    expectStatus(await root.delete(`${base}/${made['id']}?permanent=true`, await tag()), 204);
  });

  test.each([
    ['any version', () => '*'],
    ['any version, with spaces', () => '  * '],
    ['a list with the present one', (v: number) => `"99999", "${v}", "abc"`],
    ['a list without spaces', (v: number) => `"99999","${v}"`],
  ])('%s lets a change through', async (_what, header) => {
    const made = await make();
    expectStatus(await rename(made, header(made['version'])), 200);
  });

  test.each([
    ['a weak tag', (v: number) => `W/"${v}"`],
    ['a list of others', () => '"98", "99"'],
    ['another’s sha256', () => `"${'a'.repeat(64)}"`],
    ['no quotes', (v: number) => `${v}`],
    ['a quote too few', (v: number) => `"${v}`],
    ['single quotes', (v: number) => `'${v}'`],
    ['nonsense', () => 'nonsense'],
    ['a quoted star', () => '"*"'],
    ['a number beyond 64 bits', () => '"99999999999999999999"'],
    ['a negative number', () => '"-1"'],
    ['a leading zero', (v: number) => `"0${v}"`],
    ['an empty tag', () => '""'],
    ['nothing', () => ''],
  ])('%s matches nothing: 412', async (_what, header) => {
    const made = await make();
    const answer = await sendOdd(baseUrl(), {
      method: 'POST',
      path: `${base}/${made['id']}/rename`,
      headers: [
        ['Authorization', `Bearer ${root.token}`],
        ['Content-Type', 'application/json'],
        ['If-Match', header(made['version'])],
      ],
      body: JSON.stringify({ name: uniqueName() }),
    });
    expectProblem(answer, 412, 'precondition_failed');
    expect((await get(made)).json['version']).toBe(made['version']);
  });

  test('two headers are one list', async () => {
    const made = await make();
    const answer = await sendOdd(baseUrl(), {
      method: 'POST',
      path: `${base}/${made['id']}/rename`,
      headers: [
        ['Authorization', `Bearer ${root.token}`],
        ['Content-Type', 'application/json'],
        ['If-Match', '"99"'],
        ['If-Match', `"${made['version']}"`],
      ],
      body: JSON.stringify({ name: uniqueName() }),
    });
    expectStatus(answer, 200);
  });

  test('what is not there is 404, whatever is asked of it', async () => {
    expectProblem(await root.post(`${base}/${unknownId}/rename`, { name: 'a' }, { 'if-match': '*' }), 404, 'not_found');
    expectProblem(
      await root.post(`${base}/${unknownId}/rename`, { name: 'a' }, { 'if-match': '"1"' }),
      404,
      'not_found',
    );
  });

  test('of two changes meant for one version, one comes through', async () => {
    const made = await make();
    const answers = await Promise.all([1, 2, 3, 4].map(() => rename(made, `"${made['version']}"`)));
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 412, 412, 412]);
  });
});
