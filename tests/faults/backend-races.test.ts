import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { defaultBackend, makeBackend } from '../support/backends.ts';
import { expectStatus, logIn, uploadIdOf, uploadMetadata } from '../support/client.ts';
import type { Answer, Client, Json } from '../support/client.ts';
import { FaultReport } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { System } from '../support/system.ts';
import { contentOf } from '../support/uploads.ts';

const random = new Random(chooseSeed());
const report = new FaultReport('R34 deleting a backend against all that refers to it');
const answers = new Map<string, number>();
const content = 'what must not get lost';

let system: System;
let admin: Client;
let home: Json;
let database: pg.Pool;

beforeAll(async () => {
  process.stderr.write(`backend races: STOWAGE_TEST_SEED=${random.seed}\n`);
  system = await startSystem('services', { STOWAGE_LOG_LEVEL: 'fatal', STOWAGE_JOB_LEASE: '2s' });
  admin = await logIn(system.url);
  home = await defaultBackend(admin);
  database = new pg.Pool({ connectionString: system.databaseUrl, max: 2 });
  database.on('error', () => undefined);
});
afterAll(async () => {
  report.add('answers', Object.fromEntries([...answers].sort()));
  report.print();
  await database?.end();
  await system?.close();
});

/** What each call may be answered with, by what the interface says of it. */
const allowed: Readonly<Record<string, readonly string[]>> = {
  delete: ['204', '404 not_found', '409 backend_delete_refused'],
  put: ['200', '400 validation_failed'],
  unput: ['200', '404 not_found'],
  patch: ['200', '404 not_found', '412 precondition_failed'],
  enable: ['200', '404 not_found'],
  disable: ['200', '404 not_found'],
  forget: ['200', '404 not_found', '409 state_conflict'],
  create: ['201'],
  finalize: ['201'],
};

/** A call after a short time, with its answer noted and judged; gives status and code. */
async function race(what: keyof typeof allowed, call: () => Promise<Answer>): Promise<{ said: string; json: Json }> {
  await sleep(random.integer(0, 25));
  const { status, json } = await call();
  const said = status < 400 ? String(status) : `${status} ${json['code']}`;
  const noted = `${what} ${said}`;
  answers.set(noted, (answers.get(noted) ?? 0) + 1);
  if (!allowed[what]?.includes(said)) throw new Error(`${what} was answered with ${said}: ${JSON.stringify(json)}`);
  return { said, json };
}

/** The calls of one round, on a backend of its own and a class that is placed there. */
class Round {
  readonly fileClass = uniqueName('class');
  readonly backend: Json;
  /** Files whose finalize was answered with 201. */
  readonly files: string[] = [];

  constructor(backend: Json) {
    this.backend = backend;
  }

  readonly #at = (action = ''): string => `/api/backends/${this.backend['id']}${action}`;
  readonly #policy = (): string => `/api/policies/placement/${this.fileClass}`;

  remove = () => race('delete', () => admin.delete(this.#at()));
  enable = () => race('enable', () => admin.post(this.#at('/enable')));
  disable = () => race('disable', () => admin.post(this.#at('/disable')));
  unput = () => race('unput', () => admin.delete(this.#policy()));
  forget = () => race('forget', () => admin.post(this.#at('/forget-replicas'), { confirm: true }));
  patch = (headers: Record<string, string> = {}) =>
    race('patch', () => admin.call('PATCH', this.#at(), { body: { name: uniqueName('renamed') }, headers }));
  put = (first = this.backend['id'], more: Json = {}) => {
    const body = { backends: [...new Set([first, this.backend['id']])], replicas: 1, ...more };
    return race('put', () => admin.call('PUT', this.#policy(), { body }));
  };

  /** An upload from its creation to the file. */
  async upload(): Promise<void> {
    const metadata = uploadMetadata({ filename: uniqueName(), file_class: this.fileClass });
    const headers = { 'upload-length': String(content.length), 'upload-metadata': metadata };
    const made: { answer?: Answer } = {};
    await race('create', async () => (made.answer = await admin.tus('POST', '/files', headers, Buffer.from(content))));
    const id = made.answer ? uploadIdOf(made.answer) : '';
    const { json } = await race('finalize', () => admin.post(`/api/uploads/${id}/finalize`));
    this.files.push(json['id']);
  }

  /** All that has to go before the backend may, one after the other, and the deletion again and again. */
  async leave(): Promise<void> {
    await this.disable();
    await this.unput();
    for (let tries = 0; tries < 4; tries += 1) await this.remove();
  }
}

/** Each a race of its own; gives what was acknowledged of the deletion and of the policy. */
const kinds: Readonly<Record<string, (round: Round) => Promise<unknown>>> = {
  policy: async (round) => {
    await round.disable();
    await Promise.all([round.remove(), round.put(), round.put(home['id'])]);
  },
  upload: async (round) => {
    await round.put();
    await Promise.all([round.leave(), round.upload(), round.upload(), round.upload()]);
  },
  'PATCH, enable and forget': async (round) => {
    await round.disable();
    await Promise.all([round.remove(), round.patch(), round.enable(), round.forget(), round.patch()]);
  },
  'forget of what holds content': async (round) => {
    await round.put();
    await round.upload();
    await Promise.all([round.leave(), round.forget(), round.upload(), round.enable(), round.put()]);
  },
  'copies at once': async (round) => {
    await round.put(home['id'], { replicas: 2, sync_replicas: 2 });
    await Promise.all([round.upload(), round.upload()]);
    await Promise.all([round.leave(), round.put(), round.forget()]);
  },
};

async function dangling(): Promise<unknown[]> {
  const { rows } = await database.query(`
    select 'policy' as what, backend_id from placement.policy_backends union all
    select 'replica', backend_id from catalog.replicas union all
    select 'count', backend_id from catalog.replica_counts union all
    select 'upload', backend_id from upload.uploads where backend_id is not null
    except select what, b.id from registry.backends b, unnest(array['policy', 'replica', 'count', 'upload']) what`);
  return rows;
}

/** Either the backend is gone and nothing names it, or it is there with all that was acknowledged. */
async function judge(round: Round): Promise<'deleted' | 'stayed'> {
  expect(await dangling()).toEqual([]);
  for (const file of round.files) expect((await contentOf(admin, file)).toString()).toBe(content);
  const there = await admin.get(`/api/backends/${round.backend['id']}`);
  const { items } = expectStatus(await admin.get('/api/policies/placement'), 200).json;
  const policy = items.find((item: Json) => item['file_class'] === round.fileClass);
  if (there.status === 404) {
    expect(policy?.backends ?? []).not.toContain(round.backend['id']);
    return 'deleted';
  }
  const named = (policy?.backends ?? []).includes(round.backend['id']);
  const { blockers } = expectStatus(there, 200).json['deletable'];
  expect(blockers.some((blocker: Json) => blocker['code'] === 'referenced_by_policy')).toBe(named);
  return 'stayed';
}

test.each(Object.entries(kinds))(
  '%s: no race leaves anything that points to a missing backend',
  async (kind, run) => {
    const outcomes = { deleted: 0, stayed: 0 };
    const rounds = Math.ceil(faultSizes.backendRaces / Object.keys(kinds).length);
    for (let count = 0; count < rounds; count += 1) {
      const round = new Round(await makeBackend(admin));
      try {
        await run(round);
        outcomes[await judge(round)] += 1;
      } catch (error) {
        throw new Error(`seed ${random.seed}, round ${count} of ${kind}: ${String(error)}`, { cause: error });
      }
    }
    report.add(kind, { rounds, ...outcomes });
  },
  600_000,
);

test('of changes under one If-Match exactly one is done (T76)', async () => {
  for (let count = 0; count < faultSizes.backendRaces / 10; count += 1) {
    const round = new Round(await makeBackend(admin));
    const headers = { 'if-match': `"${round.backend['version']}"` };
    const said = await Promise.all([1, 2, 3, 4].map(() => round.patch(headers)));
    expect(said.map((one) => one.said).sort()).toEqual(['200', ...Array<string>(3).fill('412 precondition_failed')]);
  }
}, 600_000);
