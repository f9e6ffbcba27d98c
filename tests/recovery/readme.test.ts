import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { execFile, spawnSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Json } from '../support/client.ts';
import { describeWith, s3Server } from '../support/real-servers.ts';
import { makeBucket } from '../support/remote-backends.ts';
import { adminPassword, startSystem } from '../support/system.ts';
import type { System } from '../support/system.ts';

const readme = join(import.meta.dirname, '../../README.md');
const hasCurl = spawnSync('curl', ['--version']).status === 0;
let system: System;

beforeAll(async () => {
  system = await startSystem('standalone');
});
afterAll(() => system.close());

/** The lines of the README that follow a comment of this name. */
async function linesOf(name: string): Promise<string> {
  const text = await readFile(readme, 'utf8');
  const lines = new RegExp(`<!-- ${name}[^>]*-->\\s*\`\`\`sh\\n([^]*?)\`\`\``).exec(text)?.[1];
  if (lines === undefined) throw new Error(`the README has no part ${name}`);
  return lines;
}

async function run(lines: string, more: Record<string, string> = {}): Promise<string> {
  const env = { PATH: process.env['PATH'], URL: system.url, PASSWORD: adminPassword, ...more };
  return (await promisify(execFile)('sh', ['-eu', '-c', lines], { env })).stdout;
}

(hasCurl ? test : test.skip)('the tour of the README works as it is written', async () => {
  const stdout = await run(await linesOf('tour'));
  expect(stdout).toContain('hello, stowage\n');
  expect(stdout).toContain('\nstowage\n');
  expect(stdout).toContain('"name":"greeting.txt"');
  expect(stdout.trim().split('\n').at(-1)).toContain('"state":"active"');
});

describeWith('S3', s3Server(), (server) => {
  (hasCurl ? test : test.skip)('two copies, one on S3, come about as the README says', async () => {
    const where = { S3_URL: server.url, S3_KEY: server.accessKey, S3_SECRET: server.secretKey };
    const lines = `${await linesOf('tour')}\n${await linesOf('copies')}`;
    const stdout = await run(lines, { ...where, BUCKET: await makeBucket(server) });
    const file: Json = JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
    expect(file['placement'].replicas.map((replica: Json) => replica['state'])).toEqual(['available', 'available']);
    expect(stdout).not.toContain(server.secretKey);
  });
});
