import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { execFile, spawnSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { adminPassword, startSystem } from '../support/system.ts';
import type { System } from '../support/system.ts';

const readme = join(import.meta.dirname, '../../README.md');
const hasCurl = spawnSync('curl', ['--version']).status === 0;
let system: System;

beforeAll(async () => {
  system = await startSystem('standalone');
});
afterAll(() => system.close());

(hasCurl ? test : test.skip)('the tour of the README works as it is written', async () => {
  const tour = /<!-- tour[^>]*-->\s*```sh\n([^]*?)```/.exec(await readFile(readme, 'utf8'))?.[1];
  expect(tour).toBeDefined();
  const env = { PATH: process.env['PATH'], URL: system.url, PASSWORD: adminPassword };
  const { stdout } = await promisify(execFile)('sh', ['-eu', '-c', tour ?? ''], { env });
  expect(stdout).toContain('hello, stowage\n');
  expect(stdout).toContain('\nstowage\n');
  expect(stdout).toContain('"name":"greeting.txt"');
  expect(stdout.trim().split('\n').at(-1)).toContain('"state":"active"');
});
