import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Agent } from 'node:http';
import { expectStatus, sha256, until } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { Release } from '@stowage/tests/support/cluster/release';
import { say } from '@stowage/tests/support/cluster/report';
import { getOnce } from '../faults/support/steady-load.ts';
import type { Outcome } from '../faults/support/steady-load.ts';

const content = Buffer.alloc(300_000, 'kept through all of it');
let release: Release;
let file: Json;

beforeAll(async () => {
  // The chart's own default: one backend-registry on a ReadWriteOnce volume.
  release = await Release.install({ namespace: 'stowage-reinstall', values: { persistence: { size: '1Gi' } } });
  const root = await release.logIn();
  // The first backend and policy are made a moment after all is ready.
  file = await until(() => root.putFile('kept.bin', content).catch(() => null), 60_000);
});

afterAll(() => release.remove());

test('what is on a ReadWriteOnce volume is not to be had for a moment while its one registry is replaced', async () => {
  const root = await release.logIn();
  let replaced = false;
  const asking = askWithoutEnd(root, `/api/files/${file['id']}/download`, () => replaced);
  const seconds = await release.upgrade({ tag: 'next' });
  await release.settled();
  await until(async () => (await root.get(`/api/files/${file['id']}/download`)).status === 200);
  replaced = true;
  const outcomes = await asking;
  const refused = outcomes.filter(({ status }) => status !== 200);
  const window = refused.length === 0 ? 0 : (refused.at(-1)?.at ?? 0) - (refused[0]?.at ?? 0);
  say(
    `helm upgrade of ${seconds.toFixed(1)} s with one ReadWriteOnce registry: downloads were refused for ` +
      `${(window / 1000).toFixed(1)} s, ${refused.length} of ${outcomes.length}`,
  );
  // In between it says so, and when to come again.
  for (const { status, retryAfter } of refused) {
    expect(status).toBe(503);
    expect(retryAfter).not.toBeNull();
  }
  expect(await downloaded(root)).toBe(sha256(content));
});

test('uninstalling and installing again keeps what volume and database hold', async () => {
  await release.uninstall();
  await until(async () => (await release.pods()).length === 0, 120_000);
  await release.helm('install');
  await release.untilReady();
  const root = await release.logIn();
  expect(expectStatus(await root.get(`/api/files/${file['id']}`), 200).json).toMatchObject({ name: 'kept.bin' });
  expect(await downloaded(root)).toBe(sha256(content));
});

async function downloaded(root: Client): Promise<string> {
  return sha256(expectStatus(await root.get(`/api/files/${file['id']}/download`), 200).bytes);
}

async function askWithoutEnd({ url, token }: Client, path: string, stopped: () => boolean): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  const agent = new Agent({ keepAlive: false });
  while (!stopped()) outcomes.push(await getOnce(agent, { url, path, token, timeoutMs: 30_000 }));
  return outcomes;
}
