import { afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { expectStatus, until } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { admin } from '@stowage/tests/support/contract';
import { Description } from '@stowage/tests/support/openapi';
import { expectProblem } from '@stowage/tests/support/problems';
import { unknownId } from '@stowage/tests/support/routes';
import { uniqueName } from '@stowage/tests/support/system';

const base = '/api/policies/placement';
let root: Client;
let local: string;
const made = new Set<string>();

beforeAll(async () => {
  root = await admin();
  const { items } = expectStatus(await root.get('/api/backends'), 200).json;
  local = items.find((backend: Json) => backend['is_default']).id;
});
afterEach(async () => {
  for (const fileClass of made) await root.delete(`${base}/${fileClass}`);
  made.clear();
});

function newClass(): string {
  const fileClass = uniqueName('class');
  made.add(fileClass);
  return fileClass;
}

function put(fileClass: string, body: Json, headers: Record<string, string> = {}): Promise<Answer> {
  return root.call('PUT', `${base}/${fileClass}`, { body, headers });
}

const one = (): Json => ({ backends: [local], replicas: 1 });

/** The jobs that saving or removing the policy of a class has queued. */
async function jobsOf(fileClass: string): Promise<Json[]> {
  const { items } = expectStatus(await root.get('/api/jobs?kind=full_reconcile&limit=1000'), 200).json;
  return items.filter((job: Json) => job['params'].file_class === fileClass);
}

describe('Placement policies', () => {
  test('the default one is there from the first start, one copy on the default local backend', async () => {
    const { items } = expectStatus(await root.get(base), 200).json;
    const found = items.find((policy: Json) => policy['file_class'] === 'default');
    expect(found).toEqual({
      file_class: 'default',
      backends: [local],
      replicas: 1,
      sync_replicas: 1,
      version: 1,
      updated_at: expect.stringMatching(/Z$/),
    });
    expect(items.map((policy: Json) => policy['file_class'])).toEqual(
      items.map((policy: Json) => policy['file_class']).sort(),
    );
    const answer = expectStatus(await root.get(`${base}/default`), 200);
    expect(answer.json).toEqual(found);
    expect(answer.headers.get('etag')).toBe('"1"');
  });

  test('saving one answers it with the one job that makes it so, and each save makes one more', async () => {
    const fileClass = newClass();
    const first = expectStatus(await put(fileClass, one()), 200);
    expect(first.json).toEqual({
      policy: {
        file_class: fileClass,
        backends: [local],
        replicas: 1,
        sync_replicas: 1,
        version: 1,
        updated_at: expect.any(String),
      },
      job: expect.objectContaining({
        kind: 'full_reconcile',
        state: 'pending',
        params: { reason: 'policy_saved', file_class: fileClass, policy_version: 1 },
      }),
    });
    expect(first.headers.get('etag')).toBe('"1"');
    const second = expectStatus(await put(fileClass, { ...one(), sync_replicas: 1 }), 200);
    expect(second.json['policy'].version).toBe(2);
    const queued = await jobsOf(fileClass);
    expect(queued.map((job) => job['id'])).toEqual([second.json['job'].id, first.json['job'].id]);
  });

  test('the job runs, and says what it found', async () => {
    const fileClass = newClass();
    await root.putFile(uniqueName(), 'some text', { type: 'text/plain' });
    const { job } = expectStatus(await put(fileClass, one()), 200).json;
    const done = await until(async () => {
      const { json } = await root.get(`/api/jobs/${job['id']}`);
      return json['state'] === 'succeeded' ? json : null;
    });
    if (done['result']['covered_by']) return;
    expect(done['result']).toMatchObject({
      blobs: expect.any(Number),
      failed: 0,
      lost: expect.any(Number),
      sample: expect.any(Array),
    });
    expect(done['result'].blobs).toBeGreaterThan(0);
  });

  test('what does not fit is 400, says where, and changes nothing', async () => {
    const fileClass = newClass();
    const cases: [Json, string][] = [
      [{ backends: [unknownId], replicas: 1 }, '/backends/0'],
      [{ backends: [local, local], replicas: 1 }, '/backends/1'],
      [{ backends: ['x'], replicas: 1 }, '/backends/0'],
      [{ backends: [], replicas: 1 }, '/backends'],
      [{ backends: [local], replicas: 2 }, '/replicas'],
      [{ backends: [local], replicas: 0 }, '/replicas'],
      [{ backends: [local], replicas: 1.5 }, '/replicas'],
      [{ backends: [local], replicas: 1, sync_replicas: 2 }, '/sync_replicas'],
      [{ backends: [local] }, '/replicas'],
      [{ ...one(), surplus: 1 }, '/surplus'],
    ];
    for (const [body, pointer] of cases) {
      const problem = expectProblem(await put(fileClass, body), 400, 'validation_failed');
      expect(problem['errors'].map((error: Json) => error['pointer'])).toContain(pointer);
    }
    expectProblem(await root.get(`${base}/${fileClass}`), 404, 'not_found');
    expect(await jobsOf(fileClass)).toEqual([]);
  });

  test.each(['Image', '1st', 'a'.repeat(64), 'a b', '-'])('the class %j can not be', async (fileClass) => {
    const answer = await put(encodeURIComponent(fileClass), one());
    const problem = expectProblem(answer, 400, 'validation_failed');
    expect(problem['errors'][0].pointer).toBe('/file_class');
  });

  test('the address of the preview names no class', async () => {
    const answer = await put('preview', one());
    expectProblem(answer, 405, 'method_not_allowed');
    expect(answer.headers.get('allow')).toBe('GET, HEAD');
  });

  test('If-Match holds a change to the version that it was meant for', async () => {
    const fileClass = newClass();
    expectProblem(await put(fileClass, one(), { 'if-match': '"1"' }), 412, 'precondition_failed');
    expectStatus(await put(fileClass, one(), { 'if-match': '*' }), 200);
    expectStatus(await put(fileClass, one(), { 'if-match': '"1"' }), 200);
    expectProblem(await put(fileClass, one(), { 'if-match': '"1"' }), 412, 'precondition_failed');
    const stale = { 'if-match': '"1"' };
    expectProblem(await root.delete(`${base}/${fileClass}`, stale), 412, 'precondition_failed');
    expect(await jobsOf(fileClass)).toHaveLength(2);
    expectStatus(await root.delete(`${base}/${fileClass}`, { 'if-match': '"2"' }), 200);
  });

  test('an Idempotency-Key makes one change and one job of many requests', async () => {
    const fileClass = newClass();
    const headers = { 'idempotency-key': uniqueName('key') };
    const answers = await Promise.all(Array.from({ length: 6 }, () => put(fileClass, one(), headers)));
    for (const answer of answers) expect(expectStatus(answer, 200).json).toEqual(answers[0]?.json);
    expect(await jobsOf(fileClass)).toHaveLength(1);
    expectProblem(await put(fileClass, { ...one(), sync_replicas: 1 }, headers), 422, 'idempotency_key_reused');
  });

  test('many saves at once make as many versions, each with its job', async () => {
    const fileClass = newClass();
    const answers = await Promise.all(Array.from({ length: 20 }, () => put(fileClass, one())));
    const versions = answers.map((answer) => Number(expectStatus(answer, 200).json['policy'].version));
    expect(versions.sort((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, index) => index + 1));
    const queued = await jobsOf(fileClass);
    expect(queued.map((job) => job['params'].policy_version).sort((a, b) => a - b)).toEqual(versions);
  });

  test('removing one gives its class the default one and queues a job; the default one stays', async () => {
    const fileClass = newClass();
    expectStatus(await put(fileClass, one()), 200);
    const { job } = expectStatus(await root.delete(`${base}/${fileClass}`), 200).json;
    expect(job).toMatchObject({ kind: 'full_reconcile', params: { reason: 'policy_removed', file_class: fileClass } });
    expectProblem(await root.get(`${base}/${fileClass}`), 404, 'not_found');
    expectProblem(await root.delete(`${base}/${fileClass}`), 404, 'not_found');
    expectProblem(await root.delete(`${base}/default`), 409, 'state_conflict');
  });
});

test('answers are as the description says', async () => {
  const description = await Description.of(root);
  const expectDescribed = (route: string, answer: Answer, status: number): void => {
    const schema = description.schemaOfAnswer(route, expectStatus(answer, status).status);
    expect({ route, faults: description.faults(schema ?? '', answer.json) }).toEqual({ route, faults: [] });
  };
  const fileClass = newClass();
  const own = `${base}/{file_class}`;
  expectDescribed(`PUT ${own}`, await put(fileClass, one()), 200);
  expectDescribed(`GET ${own}`, await root.get(`${base}/${fileClass}`), 200);
  expectDescribed(`GET ${base}`, await root.get(base), 200);
  expectDescribed(`GET ${base}/preview`, await root.get(`${base}/preview`), 200);
  expectDescribed(`DELETE ${own}`, await root.delete(`${base}/${fileClass}`), 200);
});

describe('The preview', () => {
  const preview = (query = ''): Promise<Answer> => root.get(`${base}/preview${query}`);

  test('tells of each class what it has, and that nothing is to be done', async () => {
    const fileClass = newClass();
    for (const size of [10, 20]) await root.putFile(uniqueName(), Buffer.alloc(size, 1), { fileClass });
    const { classes } = expectStatus(await preview(), 200).json;
    expect(classes.find((sums: Json) => sums['file_class'] === fileClass)).toEqual({
      file_class: fileClass,
      files: 2,
      bytes: 30,
      satisfied: 2,
      to_copy: 0,
      to_remove: 0,
      unsatisfiable: 0,
      lost: 0,
    });
  });

  test('with a policy to try tells of what that one would govern, and changes nothing', async () => {
    const fileClass = newClass();
    await root.putFile(uniqueName(), Buffer.alloc(7, 1), { fileClass });
    const tried = expectStatus(await preview(`?file_class=${fileClass}&backends=${local}&replicas=1`), 200).json;
    expect(tried).toEqual({
      classes: [expect.objectContaining({ file_class: fileClass, files: 1, satisfied: 1 })],
      backends: [],
      problems: [],
    });
    expectProblem(await root.get(`${base}/${fileClass}`), 404, 'not_found');
    expect(await jobsOf(fileClass)).toEqual([]);
  });

  test('of a class without a policy of its own, with none to try, is 404', async () => {
    expectProblem(await preview(`?file_class=${newClass()}`), 404, 'not_found');
  });

  test.each([
    ['?backends=x', '?backends'],
    [`?backends=${unknownId}`, '?file_class'],
    [`?file_class=image&backends=${unknownId}`, '?backends'],
    ['?file_class=image&replicas=2', '?replicas'],
    ['?file_class=image&replicas=0', '?replicas'],
    ['?file_class=Image', '?file_class'],
    ['?class=image', '?class'],
  ])('%s is 400', async (query, pointer) => {
    const problem = expectProblem(await preview(query), 400, 'validation_failed');
    expect(problem['errors'].map((error: Json) => error['pointer'])).toContain(pointer);
  });
});
