import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Json } from '../support/client.ts';
import { hasCurl, linesOf, runLines } from '../support/page-lines.ts';
import { describeWith, s3Server } from '../support/real-servers.ts';
import { makeBucket } from '../support/remote-backends.ts';
import { adminPassword, startSystem } from '../support/system.ts';
import type { System } from '../support/system.ts';

const readme = 'README.md';
let system: System;

beforeAll(async () => {
  system = await startSystem('standalone');
});
afterAll(() => system.close());

async function run(lines: string, more: Record<string, string> = {}): Promise<string> {
  return runLines(lines, { URL: system.url, PASSWORD: adminPassword, ...more });
}

(hasCurl ? test : test.skip)('the tour of the README works as it is written', async () => {
  const stdout = await run(await linesOf(readme, 'tour'));
  expect(stdout).toContain('hello, stowage\n');
  expect(stdout).toContain('\nstowage\n');
  expect(stdout).toContain('"name":"greeting.txt"');
  expect(stdout.trim().split('\n').at(-1)).toContain('"state":"active"');
});

(hasCurl ? test : test.skip)('metadata go out and in again as the README says', async () => {
  const stdout = await run(`${await linesOf(readme, 'tour')}\n${await linesOf(readme, 'metadata')}`);
  expect(stdout).toContain('"valid":true');
  expect(stdout).toContain('"ok":true');
  expect(stdout).toMatch(/"previous_export_id":"[0-9a-f-]{36}"/);
  expect(stdout.trim().split('\n').at(-1)).toBe('{"mode":"normal"}');
});

describeWith('S3', s3Server(), (server) => {
  (hasCurl ? test : test.skip)('two copies, one on S3, come about as the README says', async () => {
    const where = { S3_URL: server.url, S3_KEY: server.accessKey, S3_SECRET: server.secretKey };
    const lines = `${await linesOf(readme, 'tour')}\n${await linesOf(readme, 'copies')}`;
    const stdout = await run(lines, { ...where, BUCKET: await makeBucket(server) });
    const file: Json = JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
    expect(file['placement'].replicas.map((replica: Json) => replica['state'])).toEqual(['available', 'available']);
    expect(stdout).not.toContain(server.secretKey);
  });
});
