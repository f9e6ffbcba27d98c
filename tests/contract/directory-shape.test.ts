import { beforeAll, describe, expect, test } from '@jest/globals';
import { expectStatus } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { admin } from '@stowage/tests/support/contract';
import { expectProblem } from '@stowage/tests/support/problems';
import { uniqueName } from '@stowage/tests/support/system';
import { at, makeChain, readDirectory, readFile } from '@stowage/tests/support/tree';
import { completeUpload, finalize } from '@stowage/tests/support/uploads';

let client: Client;
let home: string;

beforeAll(async () => {
  client = await admin();
  home = (await client.makeDirectory(uniqueName('shape')))['id'];
});

function move(id: string, parentId: string): Promise<Answer> {
  return client.post(`/api/directories/${id}/move`, { parent_id: parentId });
}

describe('the tree stays a tree (T47)', () => {
  test('of two moves into each other at one moment one is a cycle', async () => {
    for (let round = 0; round < 12; round += 1) {
      const [a, b] = [
        await client.makeDirectory(uniqueName('a'), home),
        await client.makeDirectory(uniqueName('b'), home),
      ];
      const answers = await Promise.all([move(a['id'], b['id']), move(b['id'], a['id'])]);
      expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
      expectProblem(
        at(
          answers.filter(({ status }) => status === 409),
          0,
        ),
        409,
        'cycle',
      );
    }
  });

  test('a ring of moves at one moment leaves one of them out at least', async () => {
    for (let round = 0; round < 5; round += 1) {
      const ring = await Promise.all(Array.from({ length: 5 }, () => client.makeDirectory(uniqueName('ring'), home)));
      const answers = await Promise.all(ring.map((one, n) => move(one['id'], at(ring, (n + 1) % ring.length)['id'])));
      expect(answers.filter(({ status }) => status === 409).length).toBeGreaterThanOrEqual(1);
      for (const one of ring)
        expect((await readDirectory(client, one['id']))['path'].split('/').length).toBeLessThan(10);
    }
  });

  test('of many that want one name at one moment one gets it', async () => {
    const name = uniqueName('wanted');
    const body = { parent_id: home, name };
    const answers = await Promise.all(Array.from({ length: 12 }, () => client.post('/api/directories', body)));
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
    for (const answer of answers.filter(({ status }) => status !== 201)) expectProblem(answer, 409, 'name_conflict');
  });

  test('of many that take the next free name each gets another', async () => {
    const name = uniqueName('wanted');
    const body = { parent_id: home, name, on_conflict: 'rename' };
    const answers = await Promise.all(Array.from({ length: 12 }, () => client.post('/api/directories', body)));
    const names = answers.map((answer) => expectStatus(answer, 201).json['name']);
    const expected = [name, ...Array.from({ length: 11 }, (_, n) => `${name} (${n + 2})`)];
    expect(names.sort()).toEqual(expected.sort());
  });

  test('what moves into a directory while that goes into the bin is there or in it, never lost', async () => {
    for (let round = 0; round < 8; round += 1) {
      const [target, made] = [
        await client.makeDirectory(uniqueName('t'), home),
        await client.makeDirectory(uniqueName('m'), home),
      ];
      const [moved, recycled] = await Promise.all([
        move(made['id'], target['id']),
        client.delete(`/api/directories/${target['id']}`),
      ]);
      expectStatus(recycled, 200);
      const now = await readDirectory(client, made['id']);
      if (moved.status === 200) expect(now).toMatchObject({ state: 'recycled', parent_id: target['id'] });
      else {
        expectProblem(moved, 409, 'state_conflict');
        expect(now).toMatchObject({ state: 'active', parent_id: home });
      }
    }
  });
});

describe('the depth of 128 (T73)', () => {
  let chain: Json[];
  const deepest = (): string => at(chain, -1)['id'];

  beforeAll(async () => {
    chain = await makeChain(client, 'root', [
      uniqueName('deep'),
      ...Array.from({ length: 127 }, (_, n) => String(n + 2)),
    ]);
  });

  test('is the last that a directory can be made in', async () => {
    expect(at(chain, -1)['path'].split('/')).toHaveLength(129);
    expectProblem(
      await client.post('/api/directories', { parent_id: deepest(), name: 'below' }),
      400,
      'validation_failed',
    );
    expectStatus(await client.post('/api/directories', { parent_id: at(chain, -2)['id'], name: 'beside' }), 201);
  });

  test('holds for files', async () => {
    const file = await client.putFile('last.txt', 'x', { directory: at(chain, -2)['id'] });
    const move = await client.post(`/api/files/${file['id']}/move`, { directory_id: deepest() });
    expectProblem(move, 400, 'validation_failed');
    const upload = await completeUpload(client, Buffer.from('x'), { filename: 'too-deep.txt', directory_id: home });
    expectProblem(await finalize(client, upload, { directory_id: deepest() }), 400, 'validation_failed');
    const metadata = `filename ${btoa('too-deep.txt')},directory_id ${btoa(deepest())}`;
    const early = await client.tus('POST', '/files', { 'upload-length': '1', 'upload-metadata': metadata });
    expectProblem(early, 400, 'validation_failed');
  });

  test('holds for what is moved or restored there', async () => {
    const made = await client.makeDirectory(uniqueName('deeper'), home);
    expectProblem(await move(made['id'], deepest()), 400, 'validation_failed');
    expectStatus(await client.delete(`/api/directories/${made['id']}`), 200);
    const restored = await client.post(`/api/directories/${made['id']}/restore`, { parent_id: deepest() });
    expectProblem(restored, 400, 'validation_failed');
    expect((await readDirectory(client, made['id']))['state']).toBe('recycled');
  });

  test('is that of the node that moves: what lies below it may lie deeper, and is read, renamed and recycled there', async () => {
    const names = [uniqueName('long'), ...Array.from({ length: 59 }, (_, n) => `x${n}`)];
    const long = await makeChain(client, home, names);
    const file = await client.putFile('bottom.txt', 'down here', { directory: at(long, -1)['id'] });
    expectStatus(await move(at(long, 0)['id'], at(chain, 99)['id']), 200);
    const bottom = await readFile(client, file['id']);
    expect(bottom['path'].split('/')).toHaveLength(162);
    const content = expectStatus(await client.get(`/api/files/${file['id']}/download`), 200);
    expect(content.bytes.toString()).toBe('down here');
    expectStatus(await client.post(`/api/files/${file['id']}/rename`, { name: 'still.txt' }), 200);
    expectProblem(
      await client.post('/api/directories', { parent_id: at(long, -1)['id'], name: 'no' }),
      400,
      'validation_failed',
    );
    expectStatus(await client.delete(`/api/files/${file['id']}`), 200);
    expectStatus(await client.delete(`/api/directories/${at(long, 0)['id']}`), 200);
    expect(await readDirectory(client, at(long, -1)['id'])).toMatchObject({ state: 'recycled' });
  });
});
