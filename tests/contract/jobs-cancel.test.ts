import { afterAll, beforeAll, expect, test } from '@jest/globals';
import pg from 'pg';
import { makeBackend } from '@stowage/tests/support/backends';
import { expectStatus, logIn, until } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { startOwnSystem } from '@stowage/tests/support/own-system';
import type { OwnSystem } from '@stowage/tests/support/own-system';
import { expectProblem } from '@stowage/tests/support/problems';
import { unknownId } from '@stowage/tests/support/routes';
import { uniqueName } from '@stowage/tests/support/system';

let system: OwnSystem;
let root: Client;
let database: pg.Client;

beforeAll(async () => {
  system = await startOwnSystem(mode());
  root = await logIn(system.url);
  database = new pg.Client({ connectionString: system.databaseUrl });
  await database.connect();
});
afterAll(async () => {
  await database.end();
  await system.close();
});

async function jobsOf(query: string): Promise<Json[]> {
  return expectStatus(await root.get(`/api/jobs?limit=1000&${query}`), 200).json['items'];
}

async function jobOf(id: string): Promise<Json> {
  return expectStatus(await root.get(`/api/jobs/${id}`), 200).json;
}

/** The states that a job was announced in. */
async function announced(id: string): Promise<string[]> {
  const { rows } = await database.query<{ state: string }>(
    `select split_part(subject, '.', 4) as state from jobs.outbox where data ->> 'id' = $1 order by position`,
    [id],
  );
  return rows.map(({ state }) => state);
}

test('a pending job that is cancelled is never run, nor cancelled or retried again', async () => {
  const planned = await until(async () => {
    return (
      (await jobsOf('kind=full_reconcile&state=pending')).find((job) => Date.parse(job['run_after']) > Date.now()) ??
      null
    );
  });
  const { id } = planned;
  const cancelled = expectStatus(await root.post(`/api/jobs/${id}/cancel`), 200).json;
  expect(cancelled).toMatchObject({ id, state: 'cancelled', attempt: 0, started_at: null, error: null });
  expect(Date.parse(cancelled['finished_at'])).not.toBeNaN();
  expectProblem(await root.post(`/api/jobs/${id}/cancel`), 409, 'state_conflict');
  expectProblem(await root.post(`/api/jobs/${id}/retry`), 409, 'state_conflict');
  await database.query('update jobs.jobs set run_after = now() where id = $1', [id]);
  expectStatus(await root.post('/api/jobs/run-pending', { kinds: ['full_reconcile'], wait_seconds: 2 }), 200);
  expect((await jobOf(String(id)))['state']).toBe('cancelled');
  expect(await announced(String(id))).toEqual(['pending', 'cancelled']);
});

test('many who cancel a job at once: one does', async () => {
  const { id } = expectStatus(await root.post('/api/jobs/enqueue-health-checks'), 202).json['jobs'][0];
  const answers = await Promise.all(Array.from({ length: 6 }, () => root.post(`/api/jobs/${id}/cancel`)));
  expect(answers.filter(({ status }) => status === 200).length).toBeLessThanOrEqual(1);
  for (const answer of answers) expect([200, 409]).toContain(answer.status);
});

test('a job that is not there is 404, and what is sent along is refused', async () => {
  expectProblem(await root.post(`/api/jobs/${unknownId}/cancel`), 404, 'not_found');
  expectProblem(await root.post(`/api/jobs/${unknownId}/cancel`, { force: true }), 400, 'validation_failed');
});

test('a full reconcile that is cancelled while it runs changes nothing more, and makes room for the next', async () => {
  const second = await makeBackend(root);
  const fileClass = uniqueName('class');
  const file = await root.putFile(uniqueName(), 'gets a second copy', { fileClass });
  const { placement } = expectStatus(await root.get(`/api/files/${file['id']}`), 200).json;
  const body = { backends: [placement['replicas'][0].backend_id, second['id']], replicas: 2 };
  await database.query('begin; lock table catalog.replicas in access exclusive mode');
  const saved = await root.call('PUT', `/api/policies/placement/${fileClass}`, { body });
  const { id } = expectStatus(saved, 200).json['job'];
  await until(async () => (await jobOf(id))['state'] === 'running');
  expect(expectStatus(await root.post(`/api/jobs/${id}/cancel`), 200).json).toMatchObject({ state: 'cancelled' });
  await database.query('rollback');
  const { job } = expectStatus(await root.post('/api/jobs/enqueue-full-reconcile'), 202).json;
  await until(async () => (await jobOf(job.id))['state'] === 'succeeded', 60_000);
  const { placement: now } = expectStatus(await root.get(`/api/files/${file['id']}`), 200).json;
  expect(now['state']).toBe('satisfied');
  expect(await jobOf(id)).toMatchObject({ state: 'cancelled', attempt: 1, result: null });
  expect(await announced(id)).toEqual(['pending', 'running', 'cancelled']);
});
