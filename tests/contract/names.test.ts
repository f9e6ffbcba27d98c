import { beforeAll, describe, expect, test } from '@jest/globals';
import { expectStatus } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { admin, baseUrl } from '@stowage/tests/support/contract';
import { badNames, decomposedNames, goodNames } from '@stowage/tests/support/name-corpus';
import { sendOdd } from '@stowage/tests/support/odd-http';
import { expectProblem, pointersOf } from '@stowage/tests/support/problems';
import { uniqueName } from '@stowage/tests/support/system';
import { at, byBytes, childNames, inBatches, readDirectory, readFile } from '@stowage/tests/support/tree';
import { completeUpload, createUpload, finalize, makeUpload } from '@stowage/tests/support/uploads';

let client: Client;
let home: string;

beforeAll(async () => {
  client = await admin();
  home = await freshDirectory();
});

async function freshDirectory(): Promise<string> {
  return (await client.makeDirectory(uniqueName('names')))['id'];
}

/** Each way to give a node a name; `make` sets the scene once, and `name` may be called again and again. */
const ways: { way: string; pointer: string; make: () => Promise<(name: string) => Promise<Answer>> }[] = [
  {
    way: 'making a directory',
    pointer: '/name',
    make: async () => (name) => client.post('/api/directories', { parent_id: home, name }),
  },
  {
    way: 'renaming a directory',
    pointer: '/name',
    make: () => onDirectory((id, name) => client.post(`${id}/rename`, { name })),
  },
  {
    way: 'moving a directory',
    pointer: '/name',
    make: () => onDirectory((id, name, parent) => client.post(`${id}/move`, { parent_id: parent, name })),
  },
  { way: 'restoring a directory', pointer: '/name', make: () => onRecycled('directory') },
  { way: 'renaming a file', pointer: '/name', make: () => onFile((id, name) => client.post(`${id}/rename`, { name })) },
  {
    way: 'moving a file',
    pointer: '/name',
    make: () => onFile((id, name, parent) => client.post(`${id}/move`, { directory_id: parent, name })),
  },
  { way: 'restoring a file', pointer: '/name', make: () => onRecycled('file') },
  { way: 'finalizing an upload', pointer: '/filename', make: onUpload },
];

type Change = (path: string, name: string, parent: string) => Promise<Answer>;

async function onDirectory(change: Change): Promise<(name: string) => Promise<Answer>> {
  const parent = await freshDirectory();
  const made = await client.makeDirectory(uniqueName('node'), parent);
  return (name) => change(`/api/directories/${made['id']}`, name, parent);
}

async function onFile(change: Change): Promise<(name: string) => Promise<Answer>> {
  const parent = await freshDirectory();
  const made = await client.putFile(uniqueName('node'), 'x', { directory: parent });
  return (name) => change(`/api/files/${made['id']}`, name, parent);
}

async function onRecycled(kind: 'directory' | 'file'): Promise<(name: string) => Promise<Answer>> {
  const on = kind === 'directory' ? onDirectory : onFile;
  return on(async (path, name) => {
    expectStatus(await client.delete(path), 200);
    return client.post(`${path}/restore`, { name });
  });
}

async function onUpload(): Promise<(name: string) => Promise<Answer>> {
  const upload = await completeUpload(client, Buffer.from('x'), { filename: uniqueName(), directory_id: home });
  return (filename) => finalize(client, upload, { filename });
}

describe.each(ways)('$way', ({ pointer, make }) => {
  test('refuses every name that can not be, and says which field it is (T73)', async () => {
    const give = await make();
    const answers = await inBatches(badNames, give, 8);
    const wrong = answers.flatMap(({ status, json }, n) => {
      const right = status === 400 && json['code'] === 'validation_failed' && pointersOf(json)[0] === pointer;
      return right ? [] : [`${JSON.stringify(badNames[n]).slice(0, 40)}: ${status} ${JSON.stringify(json)}`];
    });
    expect(wrong).toEqual([]);
  });

  test('refuses what is no text', async () => {
    const give = await make();
    for (const name of [5, true, null, [], ['a'], {}, { name: 'a' }]) {
      // @ts-expect-error a name is text; a client may send anything
      expectProblem(await give(name), 400, 'validation_failed');
    }
  });
});

describe.each(ways.filter(({ way }) => way !== 'finalizing an upload' && way !== 'making a directory'))(
  '$way',
  ({ make }) => {
    test('takes every good name as it is, and every decomposed one composed (T73)', async () => {
      const give = await make();
      const taken: [string, string][] = [];
      const all = [...goodNames.map((name) => [name, name] as const), ...decomposedNames];
      for (const [name] of all) taken.push([name, expectStatus(await give(name), 200).json['name']]);
      expect(taken).toEqual(all);
    });
  },
);

describe('good names', () => {
  test('are kept byte for byte, beside each other, as directories and as files', async () => {
    const [directories, files] = [await freshDirectory(), await freshDirectory()];
    const names = [...goodNames, ...decomposedNames.map(([, kept]) => kept)];
    const distinct = [...new Set(names)].sort(byBytes);
    const made = await inBatches(distinct, (name) => client.makeDirectory(name, directories), 8);
    expect(made.map((directory) => directory['name'])).toEqual(distinct);
    expect(await childNames(client, directories)).toEqual(distinct);
    const put = await inBatches(distinct, (name) => client.putFile(name, 'x', { directory: files }), 8);
    expect(put.map((file) => file['name'])).toEqual(distinct);
    expect(await childNames(client, files)).toEqual(distinct);
    const home = await readDirectory(client, files);
    for (const file of put)
      expect((await readFile(client, file['id']))['path']).toBe(`${home['path']}/${file['name']}`);
  });
});

describe('an upload', () => {
  test('with a name that can not be is refused when it is created, not after its bytes came', async () => {
    const names = badNames.filter((name) => name.isWellFormed() && Buffer.byteLength(name) < 5_000);
    const create = (name: string): Promise<Answer> =>
      createUpload(client, { length: 1, metadata: { filename: name, directory_id: home } });
    const answers = await inBatches(names, create, 8);
    // An empty value is as good as none: the name may come with finalize.
    const wrong = names.filter((name, n) => name !== '' && answers[n]?.status !== 400);
    expect(wrong).toEqual([]);
  });

  test('with a name that is no UTF-8 is refused', async () => {
    for (const bytes of ['ff', 'c0af', 'eda080', 'f4908080', '61ff62', 'c3']) {
      const metadata = `filename ${Buffer.from(bytes, 'hex').toString('base64')}`;
      const answer = await client.tus('POST', '/files', { 'upload-length': '1', 'upload-metadata': metadata });
      expectProblem(answer, 400, 'validation_failed');
    }
  });
});

test('a lone surrogate as a \\u escape, and bytes that are no UTF-8, are 400', async () => {
  const send = (body: string | Buffer): Promise<Answer> =>
    sendOdd(baseUrl(), {
      method: 'POST',
      path: '/api/directories',
      headers: [
        ['Authorization', `Bearer ${client.token ?? ''}`],
        ['Content-Type', 'application/json'],
      ],
      body,
    });
  const bodyOf = (escape: string): string => `{"parent_id":"${home}","name":"${uniqueName()}${escape}"}`;
  for (const escape of [
    '\\ud800',
    '\\udc00',
    '\\ud800x',
    '\\udc00\\ud800',
    '\\uD83D',
    '\\u0000',
    '\\u202e',
    '\\u002f',
    '\\u000a',
    '\\u0020',
  ]) {
    expectProblem(await send(bodyOf(escape)), 400, 'validation_failed');
  }
  for (const bytes of ['ff', 'eda080', 'c0af', 'c3']) {
    const [head, tail] = bodyOf('|').split('|');
    const body = Buffer.concat([Buffer.from(head ?? ''), Buffer.from(bytes, 'hex'), Buffer.from(tail ?? '')]);
    expectProblem(await send(body), 400, 'validation_failed');
  }
  expectStatus(await send(bodyOf('\\ud83d\\ude00')), 201);
});

describe('one namespace for directories and files', () => {
  test('a directory and a file can not have one name', async () => {
    const parent = await freshDirectory();
    await client.putFile('taken', 'x', { directory: parent });
    const problem = expectProblem(
      await client.post('/api/directories', { parent_id: parent, name: 'taken' }),
      409,
      'name_conflict',
    );
    expect(problem['conflicting_kind']).toBe('file');
    await client.makeDirectory('also', parent);
    const upload = await completeUpload(client, Buffer.from('y'), { filename: 'also', directory_id: parent });
    expectProblem(await finalize(client, upload), 409, 'name_conflict');
    expect((await finalize(client, upload, { on_conflict: 'rename' })).json['name']).toBe('also (2)');
  });

  test('the composed and the decomposed form of a name are one (T74)', async () => {
    const parent = await freshDirectory();
    for (const [given, kept] of decomposedNames.filter(
      ([, kept], n, all) => all.findIndex((one) => one[1] === kept) === n,
    )) {
      expect((await client.makeDirectory(given, parent))['name']).toBe(kept);
      for (const name of [given, kept, kept.normalize('NFD')]) {
        if (Buffer.byteLength(name) > 1_000) continue;
        expectProblem(await client.post('/api/directories', { parent_id: parent, name }), 409, 'name_conflict');
        const upload = await completeUpload(client, Buffer.from('x'), { filename: name, directory_id: parent });
        expectProblem(await finalize(client, upload), 409, 'name_conflict');
      }
    }
  });

  test('names that only look alike, or differ in case, are different ones (T74)', async () => {
    const parent = await freshDirectory();
    const names = [
      'readme',
      'README',
      'Readme',
      'fi',
      'ﬁ',
      'a',
      'а',
      'ａ',
      'ss',
      'ß',
      'ẞ',
      'i',
      'ı',
      'İ',
      '1',
      '１',
      'x',
      'x\u200b',
    ];
    for (const name of names) await client.makeDirectory(name, parent);
    expect((await childNames(client, parent)).sort()).toEqual([...names].sort());
  });

  test('the same name in another directory, or in the bin, is no clash', async () => {
    const [one, other] = [await freshDirectory(), await freshDirectory()];
    const name = uniqueName('same');
    const first = await client.makeDirectory(name, one);
    await client.makeDirectory(name, other);
    expectStatus(await client.delete(`/api/directories/${first['id']}`), 200);
    await client.makeDirectory(name, one);
  });
});

describe('the next free name', () => {
  const cases: [string, string, string][] = [
    ['report.pdf', 'report (2).pdf', 'report (3).pdf'],
    ['archive.tar.gz', 'archive.tar (2).gz', 'archive.tar (3).gz'],
    ['no extension', 'no extension (2)', 'no extension (3)'],
    ['.env', '.env (2)', '.env (3)'],
    ['report (2).pdf', 'report (2) (2).pdf', 'report (2) (3).pdf'],
    ['中文.txt', '中文 (2).txt', '中文 (3).txt'],
  ];

  test.each(cases)('of %s is %s, then %s', async (name, second, third) => {
    const parent = await freshDirectory();
    await client.putFile(name, '1', { directory: parent });
    for (const expected of [second, third]) {
      const upload = await completeUpload(client, Buffer.from('2'), {
        filename: name,
        directory_id: parent,
        on_conflict: 'rename',
      });
      expect(expectStatus(await finalize(client, upload), 201).json['name']).toBe(expected);
    }
  });

  test('fills a gap, whether a directory or a file made it', async () => {
    const parent = await freshDirectory();
    for (const name of ['n', 'n (2)', 'n (4)']) await client.makeDirectory(name, parent);
    await client.putFile('n (3)', 'x', { directory: parent });
    const next = (): Promise<Answer> =>
      client.post('/api/directories', { parent_id: parent, name: 'n', on_conflict: 'rename' });
    const made = expectStatus(await next(), 201).json;
    expect(made['name']).toBe('n (5)');
    expectStatus(await client.delete(`/api/directories/${made['id']}`), 200);
    expect(expectStatus(await next(), 201).json['name']).toBe('n (5)');
  });

  test.each(['x'.repeat(255), `${'x'.repeat(251)}.txt`, '中'.repeat(85), '\u{1f600}'.repeat(63), 'é'.repeat(127)])(
    'of a name as long as it may be is no longer and whole: %.9s…',
    async (name) => {
      const parent = await freshDirectory();
      await client.makeDirectory(name, parent);
      const made: string[] = [];
      for (let n = 2; n <= 11; n += 1) {
        const { json } = expectStatus(
          await client.post('/api/directories', { parent_id: parent, name, on_conflict: 'rename' }),
          201,
        );
        made.push(json['name']);
        expect(Buffer.byteLength(json['name'])).toBeLessThanOrEqual(255);
        expect(json['name'].isWellFormed()).toBe(true);
        expect(json['name']).toContain(` (${n})`);
      }
      expect(new Set(made).size).toBe(10);
      expect(made.every((one) => name.endsWith('.txt') === one.endsWith('.txt'))).toBe(true);
    },
  );

  test('takes % and _ for what they are (T45)', async () => {
    const parent = await freshDirectory();
    const taken = ['100%', '100x (2)', '100% (3)', 'a_b', 'axb (2)', '_', '__ (2)', '%', '%% (2)', '\\%', '\\\\% (2)'];
    for (const name of taken) await client.makeDirectory(name, parent);
    for (const name of ['100%', 'a_b', '_', '%', '\\%']) {
      const { json } = expectStatus(
        await client.post('/api/directories', { parent_id: parent, name, on_conflict: 'rename' }),
        201,
      );
      expect(json['name']).toBe(`${name} (2)`);
    }
    expectProblem(await client.post('/api/directories', { parent_id: parent, name: '%' }), 409, 'name_conflict');
    expect(await childNames(client, parent)).toHaveLength(taken.length + 5);
  });
});

test('a directory named % or _ is recycled, restored and moved without its neighbours (T45, T46)', async () => {
  const parent = await freshDirectory();
  const names = ['%', '_', 'ab', '%ab', '_b', 'a%'];
  const made: Json[] = [];
  for (const name of names) made.push(await client.makeDirectory(name, parent));
  const files = await inBatches(made, (directory) =>
    client.putFile('f', directory['name'], { directory: directory['id'] }),
  );
  for (const [n, directory] of made.entries()) {
    expectStatus(await client.delete(`/api/directories/${directory['id']}`), 200);
    const states = await inBatches(files, async (file) => (await readFile(client, file['id']))['state']);
    expect(states).toEqual(names.map((_, other) => (other === n ? 'recycled' : 'active')));
    expectStatus(await client.post(`/api/directories/${directory['id']}/restore`), 200);
  }
  const [percent, target] = [at(made, 0), await freshDirectory()];
  expectStatus(await client.post(`/api/directories/${percent['id']}/move`, { parent_id: target }), 200);
  expect((await childNames(client, parent)).sort()).toEqual(names.slice(1).sort());
});

test('a name with line breaks or terminal sequences never reaches a header or log line (T63)', async () => {
  const upload = await makeUpload(client, { length: 1, metadata: { directory_id: home }, body: Buffer.from('x') });
  for (const filename of ['a\r\nX-Evil: 1', 'a\u001b[2J', 'a\nb']) {
    const answer = await finalize(client, upload, { filename });
    expectProblem(answer, 400, 'validation_failed');
    expect(answer.headers.has('x-evil')).toBe(false);
  }
});
