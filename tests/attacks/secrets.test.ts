import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { databaseText, findCanaries, hidden, secret } from '@stowage/tests/support/canaries';
import type { Canary } from '@stowage/tests/support/canaries';
import { Client, expectStatus, logIn, until } from '@stowage/tests/support/client';
import type { Answer, CallOptions } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { exchange } from '@stowage/tests/support/odd-http';
import { FickleProxy } from '@stowage/tests/support/fickle-proxy';
import { OtlpReceiver } from '@stowage/tests/support/otlp-receiver';
import { expectNothingInternal, expectProblem } from '@stowage/tests/support/problems';
import { accessOfRoutes, unknownId } from '@stowage/tests/support/routes';
import { adminPassword, startSystem } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import type { TestDatabase } from '@stowage/tests/support/test-database';
import { inBatches } from '@stowage/tests/support/tree';

const canary = (what: string): string => `canary-${what}-${randomBytes(9).toString('hex')}`;
const words = {
  password: canary('password'),
  newPassword: canary('new-password'),
  wrongPassword: canary('wrong-password'),
  passwordAsName: canary('password-typed-as-name'),
  refusedPassword: canary('refused-password'),
  shortPassword: `cnry${randomBytes(3).toString('hex')}`,
  longPassword: canary('long-password').repeat(20),
  brokenJson: canary('password-in-broken-json'),
  unknownField: canary('password-in-unknown-field'),
  queryToken: canary('token-in-query'),
  madeUpToken: `stw_${randomBytes(32).toString('base64url')}`,
  malformedToken: canary('malformed-token'),
  basicPassword: canary('basic-password'),
  otherHeader: canary('secret-in-another-header'),
};

/** A client that remembers what it was answered. */
class Recorder extends Client {
  static readonly answers: { call: string; answer: Answer }[] = [];

  override async call(method: string, path: string, options: CallOptions = {}): Promise<Answer> {
    const answer = await super.call(method, path, options);
    Recorder.answers.push({ call: `${method} ${path}`, answer });
    return answer;
  }
}

const traceId = randomBytes(16).toString('hex');
let receiver: OtlpReceiver;
let ownDatabase: TestDatabase;
let proxy: FickleProxy;
let system: System;
let database: pg.Client;
let root: Recorder;
let anonymous: Recorder;
const canaries: Canary[] = Object.entries(words).map(([what, word]) => secret(what, word));
const tokens: string[] = [];

beforeAll(async () => {
  receiver = await OtlpReceiver.start();
  ownDatabase = await startTestDatabase();
  proxy = await FickleProxy.start(ownDatabase.url);
  system = await startSystem(mode(), {
    STOWAGE_DATABASE_URL: proxy.url,
    STOWAGE_LOG_LEVEL: 'trace',
    STOWAGE_LOGIN_FAILURES_PER_ADDRESS: '1000',
    OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
    OTEL_BSP_SCHEDULE_DELAY: '100',
  });
  database = new pg.Client({ connectionString: ownDatabase.url });
  await database.connect();
  anonymous = new Recorder(system.url);
  root = await logInRecorded('admin', adminPassword);
  canaries.push(secret('the admin’s password', adminPassword), hidden('the hash of a password', '$argon2id$'));
  await useUsers();
  await useEveryRoute();
  await breakTheDatabase();
  canaries.push(...tokens.map((token, n) => hidden(`token ${n}`, token)));
});

afterAll(async () => {
  await database.end();
  await system.close();
  await proxy.close();
  await ownDatabase.close();
  await receiver.close();
});

async function logInRecorded(username: string, password: string): Promise<Recorder> {
  const { json } = expectStatus(await anonymous.post('/api/auth/login', { username, password }), 200);
  tokens.push(json['access_token']);
  return new Recorder(system.url, json['access_token']);
}

/** A user's whole life, with all that goes wrong in it. */
async function useUsers(): Promise<void> {
  const { password, newPassword, wrongPassword, passwordAsName, shortPassword, longPassword } = words;
  const ada = { username: 'ada', role: 'editor' };
  expectStatus(await root.post('/api/users', { ...ada, password: shortPassword }), 400);
  expectStatus(await root.post('/api/users', { ...ada, password: longPassword }), 400);
  expectStatus(await root.post('/api/users', { ...ada, password: [password] }), 400);
  expectStatus(await root.post('/api/users', { ...ada, role: 'owner', password }), 400);
  const { id } = expectStatus(await root.post('/api/users', { ...ada, password }), 201).json;
  expectStatus(await root.post('/api/users', { ...ada, password }), 409);
  const user = await logInRecorded('ada', password);
  expectStatus(await user.post('/api/users', { ...ada, password }), 403);
  const attempts: [string, unknown, number][] = [
    ['ada', wrongPassword, 401],
    ['nobody', wrongPassword, 401],
    [passwordAsName, wrongPassword, 401],
    ['ada', `${wrongPassword}\u0000`, 401],
    ['ada', { wrongPassword }, 400],
    ['ada', wrongPassword.repeat(40), 400],
  ];
  for (const [username, given, status] of attempts)
    expectStatus(await anonymous.post('/api/auth/login', { username, password: given }), status);
  expectStatus(await root.call('PATCH', `/api/users/${id}`, { body: { password: newPassword } }), 200);
  const again = await logInRecorded('ada', newPassword);
  expectStatus(await again.putFile('a.txt', 'x').then(() => again.get('/api/auth/me')), 200);
  expectStatus(await again.post('/api/auth/logout'), 204);
  expectStatus(await again.get('/api/auth/me'), 401);
}

/** Every route with secrets wherever a client may put them by mistake. */
async function useEveryRoute(): Promise<void> {
  const { queryToken, madeUpToken, malformedToken, basicPassword, otherHeader, brokenJson, unknownField } = words;
  const basic = `Basic ${Buffer.from(`admin:${basicPassword}`).toString('base64')}`;
  const query = `access_token=${queryToken}&token=${queryToken}&password=${queryToken}`;
  const headers = { cookie: `session=${otherHeader}`, 'x-api-key': otherHeader, 'proxy-authorization': otherHeader };
  const fields = { password: unknownField, token: unknownField, secret: { secret: unknownField } };
  const json = { 'content-type': 'application/json' };
  await inBatches(Object.keys(accessOfRoutes), async (route) => {
    const [method = '', template = ''] = route.split(' ');
    const path = template.replace(/\{\w+\}/g, unknownId);
    const bodies: CallOptions[] = /^(POST|PUT|PATCH)/.test(method)
      ? [{ body: fields }, { raw: `{"password": "${brokenJson}" oops`, headers: json }, { raw: brokenJson }]
      : [{}];
    for (const body of bodies) {
      const as = (authorization: string): CallOptions => ({ ...body, headers: { ...body.headers, authorization } });
      await root.call(method, `${path}?${query}`, { ...body, headers: { ...body.headers, ...headers } });
      // It ends the session, and is tried with a token of its own above.
      if (route !== 'POST /api/auth/logout') await root.call(method, path, body);
      await anonymous.call(method, `${path}?${query}`, body);
      for (const authorization of [`Bearer ${madeUpToken}`, `Bearer ${malformedToken}`, basic, basicPassword])
        await anonymous.call(method, path, as(authorization));
    }
  });
  root = await logInRecorded('admin', adminPassword);
  const lines = [`Authorization: Bearer ${madeUpToken}`, `X-Secret ${otherHeader}`, `Content-Length: ${otherHeader}`];
  for (const line of lines) {
    const { text } = await exchange(
      system.url,
      `GET /api/auth/me?t=${queryToken} HTTP/1.1\r\nHost: x\r\n${line}\r\nbad\r\n\r\n`,
    );
    Recorder.answers.push({
      call: line,
      answer: { status: 0, headers: new Headers(), json: {}, bytes: Buffer.from(text) },
    });
  }
}

const failures: { what: string; answer: Answer; status: number; code: string }[] = [];

/** The database fails in ways whose errors quote rows, tables and addresses. */
async function breakTheDatabase(): Promise<void> {
  const { refusedPassword, wrongPassword } = words;
  const note = (what: string, answer: Answer, status: number, code: string): void => {
    failures.push({ what, answer, status, code });
  };
  const user = { username: 'grace', role: 'viewer', password: refusedPassword };
  await database.query(`alter table identity.users add constraint refused check (username <> 'grace') not valid`);
  note('a row that is refused', await root.post('/api/users', user), 500, 'internal');
  await database.query(`alter table identity.users drop constraint refused`);

  await database.query('alter table identity.sessions add constraint refused check (false) not valid');
  const credentials = { username: 'admin', password: adminPassword };
  note('a session that is refused', await anonymous.post('/api/auth/login', credentials), 500, 'internal');
  await database.query('alter table identity.sessions drop constraint refused');

  await database.query('alter table identity.users rename to gone');
  note('a table that is gone', await anonymous.post('/api/auth/login', credentials), 500, 'internal');
  note('a table that is gone, with a token', await root.get('/api/auth/me'), 500, 'internal');
  await database.query('alter table identity.gone rename to users');

  proxy.turn('refuses');
  const wrong = { username: 'ada', password: wrongPassword };
  note('a database that is away', await anonymous.post('/api/auth/login', wrong), 503, 'unavailable');
  note('a database that is away, with a token', await root.get('/api/auth/me'), 503, 'unavailable');
  proxy.turn('answers');
}

/** What a recorded answer holds, as it went over the wire. */
function textOf({ headers, bytes }: Answer): string {
  return `${[...headers].map(([name, value]) => `${name}: ${value}`).join('\n')}\n\n${bytes.toString('latin1')}`;
}

describe('No password, token or Authorization header stands in', () => {
  test('any answer, but for the token in the answer to its own login, once (T38)', () => {
    expect(Recorder.answers.length).toBeGreaterThan(500);
    const given = new Set<string>();
    const found = Recorder.answers.flatMap(({ call, answer }) => {
      const token: unknown = call === 'POST /api/auth/login' ? answer.json['access_token'] : undefined;
      const text = textOf(answer);
      if (typeof token !== 'string') return findCanaries(text, canaries).map((place) => `${call}: ${place}`);
      given.add(token);
      return findCanaries(text.replace(token, ''), canaries).map((place) => `${call}: ${place}`);
    });
    expect(found).toEqual([]);
    expect([...given].sort()).toEqual([...tokens].sort());
  });

  test('any log line, whatever the level (T40)', async () => {
    expect(system.output()).toContain('"level":"error"');
    expect(findCanaries(system.output(), canaries)).toEqual([]);
  });

  test('any trace (T40)', async () => {
    expectStatus(
      await root.get('/api/users', { traceparent: `00-${traceId}-${randomBytes(8).toString('hex')}-01` }),
      200,
    );
    // Spans leave in the order in which they ended: all before this one have arrived as well.
    await until(async () => receiver.trace(traceId).length > 0);
    expect(receiver.spans.some((span) => span.attributes['http.route'] === '/api/auth/login')).toBe(true);
    expect(findCanaries(receiver.bodies.join('\n'), canaries)).toEqual([]);
  });

  test('any column of any table; of a password there is its hash, in its one place (T05, T37)', async () => {
    const texts = await databaseText(ownDatabase.url);
    expect(texts.get('identity.users')).toContain('$argon2id$');
    const found = [...texts].flatMap(([table, text]) => {
      const looked = table === 'identity.users' ? text.replaceAll(/"password_hash": "\$argon2id\$[^"]+"/g, '') : text;
      return findCanaries(looked, canaries).map((place) => `${table}: ${place}`);
    });
    expect(found).toEqual([]);
  });

  test('any file of the data folder', async () => {
    const entries = await readdir(system.dataDir, { recursive: true, withFileTypes: true });
    for (const entry of entries.filter((one) => one.isFile())) {
      const file = join(entry.parentPath, entry.name);
      expect({ file, found: findCanaries(await readFile(file, 'latin1'), canaries) }).toEqual({ file, found: [] });
    }
  });

  test('what this test searches with finds what is there', async () => {
    const { password } = words;
    const hiding = [password, `x${password}y`, Buffer.from(`xy${password}z`).toString('base64'), encodeURI(password)];
    for (const text of hiding) expect(findCanaries(text, canaries)).toHaveLength(1);
    expect(findCanaries('nothing', canaries)).toEqual([]);
  });
});

describe('A failure of ours', () => {
  test('tells nothing of tables, rows, folders, hosts or the database (T61)', () => {
    expect(failures).toHaveLength(6);
    const { host, username, pathname } = new URL(ownDatabase.url);
    const inside = [
      system.dataDir,
      hostname(),
      host,
      `"${username}"`,
      pathname.slice(1),
      'identity',
      'constraint',
      '/work',
    ];
    for (const { what, answer, status, code } of failures) {
      expectProblem(answer, status, code);
      const text = textOf(answer);
      expectNothingInternal(text);
      expect({ what, told: inside.filter((word) => text.includes(word)) }).toEqual({ what, told: [] });
    }
  });

  test('is over when its cause is over', async () => {
    expectStatus(await (await logIn(system.url)).get('/api/auth/me'), 200);
  });
});
