import { afterAll, beforeAll, expect, test } from '@jest/globals';
import pg from 'pg';
import { setTimeout as sleep } from 'node:timers/promises';
import { logIn, until } from '../support/client.ts';
import type { Client, Json } from '../support/client.ts';
import { FaultReport } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { startSystem } from '../support/system.ts';
import type { System } from '../support/system.ts';

const clients = 20;
const report = new FaultReport('R12 one job for each policy that is saved');
afterAll(() => report.print());

let system: System;
let admin: Client;
let database: pg.Pool;

beforeAll(async () => {
  system = await startSystem('services', { STOWAGE_LOG_LEVEL: 'error', STOWAGE_JOB_LEASE: '2s' });
  admin = await logIn(system.url);
  database = new pg.Pool({ connectionString: system.databaseUrl, max: 2 });
  database.on('error', () => undefined);
});
afterAll(async () => {
  await database?.end();
  await system?.close();
});

test('every version of a policy has exactly one job, however often placement is killed', async () => {
  const random = new Random(chooseSeed());
  process.stderr.write(`policy jobs: STOWAGE_TEST_SEED=${random.seed}\n`);
  const { items } = (await admin.get('/api/backends')).json;
  const body = { backends: [items[0].id], replicas: 1 };
  const answers: Record<string, number> = {};
  const acknowledged = new Map<string, number>();
  let saved = 0;
  const save = async (fileClass: string): Promise<void> => {
    const answer = await admin.call('PUT', `/api/policies/placement/${fileClass}`, { body }).catch(() => null);
    const status = answer?.status ?? 0;
    answers[status] = (answers[status] ?? 0) + 1;
    expect([200, 503, 0]).toContain(status);
    // So that those who ask do not keep it from starting.
    if (status !== 200) return sleep(200);
    saved += 1;
    acknowledged.set(fileClass, (acknowledged.get(fileClass) ?? 0) + 1);
  };
  const running = Array.from({ length: clients }, async () => {
    while (saved < faultSizes.policyPuts) await save(`class-${random.integer(0, 9)}`);
  });
  const ended = Promise.all(running);
  let kills = 0;
  const killer = async (): Promise<void> => {
    while (saved < faultSizes.policyPuts) {
      // Only what is at work can be killed at work.
      const before = saved;
      await until(async () => saved > before, 60_000);
      await sleep(random.integer(50, 1_600));
      process.kill(await until(() => system.pidOf('placement').catch(() => null)), 'SIGKILL');
      kills += 1;
    }
  };
  await Promise.all([ended, killer()]);
  const { rows } = await database.query<{ file_class: string; version: number; jobs: number[] }>(
    `select p.file_class, p.version::int as version, array(
       select (j.params->>'policy_version')::int from jobs.jobs j
       where j.kind = 'full_reconcile' and j.params->>'reason' = 'policy_saved' and j.params->>'file_class' = p.file_class
       order by 1) as jobs
     from placement.policies p where p.file_class like 'class-%'`,
  );
  const wrong = rows.filter(
    ({ version, jobs }) => jobs.join() !== Array.from({ length: version }, (_, n) => n + 1).join(),
  );
  expect({ seed: random.seed, wrong }).toEqual({ seed: random.seed, wrong: [] });
  for (const [fileClass, count] of acknowledged) {
    const found = rows.find((row) => row.file_class === fileClass);
    expect(found?.version ?? 0).toBeGreaterThanOrEqual(count);
  }
  expect(kills).toBeGreaterThan(0);
  const jobs = rows.reduce((sum, row) => sum + row.jobs.length, 0);
  report.add('services', { saved, kills, jobs, answers: JSON.stringify(answers) });
  await until(async () => {
    const { json } = await admin.get('/api/jobs?kind=full_reconcile&state=pending&limit=1000');
    return json['items']?.every((job: Json) => job['params'].reason !== 'policy_saved');
  }, 120_000);
}, 600_000);
