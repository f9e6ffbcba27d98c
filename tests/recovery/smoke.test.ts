import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { logIn } from '../support/client.ts';
import { adminPassword, startSystem } from '../support/system.ts';
import type { System } from '../support/system.ts';

const run = promisify(execFile);
const smoke = join(import.meta.dirname, '../../launcher/src/smoke.ts');

let system: System;
beforeAll(async () => {
  system = await startSystem('standalone');
});
afterAll(() => system.close());

function runSmoke(environment: Record<string, string>): Promise<{ stdout: string }> {
  const env = { PATH: process.env['PATH'], STOWAGE_API_URL: system.url, STOWAGE_SMOKE_PATIENCE: '1ms', ...environment };
  return run(process.execPath, [smoke], { env });
}

describe('the smoke test that helm test runs', () => {
  test('goes from the log-in to the removal for good, and leaves nothing', async () => {
    const { stdout } = await runSmoke({ STOWAGE_ADMIN_PASSWORD: adminPassword });
    expect(stdout).toMatch(
      /logged in.*\n.*uploaded.*\n.*finalized.*\n.*downloaded.*\n.*removed.*\nAll of it works\.\n$/,
    );
    const client = await logIn(system.url);
    expect((await client.get('/api/directories/root/children')).json['items']).toEqual([]);
    expect((await client.get('/api/files/recycle-bin')).json['items']).toEqual([]);
  });

  test('fails, and says why, where it may not log in', async () => {
    const failed = runSmoke({ STOWAGE_ADMIN_PASSWORD: 'another password' });
    await expect(failed).rejects.toMatchObject({ code: 1, stderr: expect.stringContaining('401 in place of 200') });
  });

  test('fails, and says why, where nobody answers', async () => {
    const failed = runSmoke({ STOWAGE_ADMIN_PASSWORD: adminPassword, STOWAGE_API_URL: 'http://127.0.0.1:9' });
    await expect(failed).rejects.toMatchObject({ code: 1, stderr: expect.stringMatching(/bad port|ECONNREFUSED/) });
  });
});
