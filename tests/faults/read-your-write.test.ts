import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Client, expectStatus, logIn } from '../support/client.ts';
import type { Json } from '../support/client.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { startSystem } from '../support/system.ts';
import type { System } from '../support/system.ts';
import { completeUpload, finalize } from '../support/uploads.ts';
import { startBeside } from '../support/beside.ts';
import type { Beside } from '../support/beside.ts';
import { report, sized } from './support/size.ts';

const clients = 8;
const pairs = sized(1_000, 10_000);
const random = new Random(chooseSeed());

let system: System;
let second: Beside;
let gateways: [Client, Client];

beforeAll(async () => {
  report('read your write', { STOWAGE_TEST_SEED: random.seed });
  system = await startSystem('services');
  second = await startBeside(system, 'gateway');
  const client = await logIn(system.url);
  gateways = [client, new Client(second.url, client.token)];
});

afterAll(async () => {
  await second?.close();
  await system?.close();
});

/** One client with two directories of its own and a file that it changes again and again. */
interface Work {
  random: Random;
  directories: [string, string];
  file: Json;
  made: number;
}

async function begin(index: number, own: Random): Promise<Work> {
  const [client] = gateways;
  const [one, two] = [await client.makeDirectory(`one-${index}`), await client.makeDirectory(`two-${index}`)];
  const file = await client.putFile(`file-${index}`, 'content', { directory: String(one['id']) });
  return { random: own, directories: [String(one['id']), String(two['id'])], file, made: 0 };
}

const names = (answer: Json): string[] => answer['items'].map((item: Json) => item['name']);

/** Writes through one gateway, reads through the other at once; gives what the read lacks, or null. */
async function writeAndRead(work: Work): Promise<string | null> {
  const [writer, reader] = work.random.chance(0.5) ? gateways : [gateways[1], gateways[0]];
  const at = `/api/files/${work.file['id']}`;
  work.made += 1;
  const name = `name-${work.made}`;
  switch (work.random.integer(0, 3)) {
    case 0: {
      work.file = expectStatus(await writer.post(`${at}/rename`, { name }), 200).json;
      const seen = expectStatus(await reader.get(at), 200).json;
      return seen['name'] === name ? null : `a rename to ${name} is read as ${seen['name']}`;
    }
    case 1: {
      const [from, to] = [work.file['directory_id'], work.directories.find((id) => id !== work.file['directory_id'])];
      work.file = expectStatus(await writer.post(`${at}/move`, { directory_id: to }), 200).json;
      const here = names(expectStatus(await reader.get(`/api/directories/${to}/children`), 200).json);
      const there = names(expectStatus(await writer.get(`/api/directories/${from}/children`), 200).json);
      const moved = here.includes(work.file['name']) && !there.includes(work.file['name']);
      return moved ? null : `a move of ${work.file['name']} is listed as ${here.join()} and ${there.join()}`;
    }
    case 2: {
      expectStatus(await writer.delete(at), 200);
      const download = await reader.get(`${at}/download`);
      work.file = expectStatus(await reader.post(`${at}/restore`), 200).json;
      const again = await writer.get(`${at}/download`);
      const right = download.status === 409 && again.status === 200;
      return right ? null : `a deleted file is downloaded as ${download.status}, a restored one as ${again.status}`;
    }
    default: {
      const content = work.random.bytes(100);
      const upload = await completeUpload(writer, content, {
        filename: `new-${name}`,
        directory_id: work.directories[0],
      });
      const { json } = expectStatus(await finalize(writer, upload), 201);
      const download = await reader.get(`/api/files/${json['id']}/download`);
      expectStatus(await reader.delete(`/api/files/${json['id']}`), 200);
      return download.bytes.equals(content) ? null : `a finalized file is downloaded as ${download.status}`;
    }
  }
}

test('what one gateway acknowledged, the other shows to the next request', async () => {
  const missed: string[] = [];
  let done = 0;
  const run = async (index: number): Promise<void> => {
    const work = await begin(index, random.fork());
    for (; done < pairs; done += 1) {
      const fault = await writeAndRead(work);
      if (fault) missed.push(fault);
    }
  };
  const began = performance.now();
  await Promise.all(Array.from({ length: clients }, (_, index) => run(index)));
  report('read your write', {
    pairs: done,
    missed: missed.length,
    seconds: Math.round((performance.now() - began) / 1000),
  });
  expect({ seed: random.seed, missed }).toEqual({ seed: random.seed, missed: [] });
  expect(done).toBeGreaterThanOrEqual(pairs);
});

test('a logout through one gateway ends the session for the other at once', async () => {
  for (let round = 0; round < 20; round += 1) {
    const { token } = await logIn(system.url);
    const [here, there] = [new Client(system.url, token), new Client(second.url, token)];
    expectStatus(await there.get('/api/auth/me'), 200);
    expectStatus(await here.post('/api/auth/logout'), 204);
    expectStatus(await there.get('/api/auth/me'), 401);
  }
});
