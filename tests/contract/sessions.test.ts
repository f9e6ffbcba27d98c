import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { createHash } from 'node:crypto';
import pg from 'pg';
import { expectStatus, logIn, logInAs } from '@stowage/tests/support/client';
import type { Answer, Client } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { expectProblem, expectRetryAfter } from '@stowage/tests/support/problems';
import { postFrom } from '@stowage/tests/support/odd-http';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';

const limits = { perUser: 4, perAddress: 12, windowSeconds: 900 };
const trustedProxy = '127.0.0.2';
const hourMs = 3_600_000;
let system: System;
let database: pg.Client;
let root: Client;
let rootPassword: string;
let lastAddress = 10;

beforeAll(async () => {
  system = await startSystem(mode(), {
    STOWAGE_ADMIN_PASSWORD: '',
    STOWAGE_ADMIN_USERNAME: 'captain',
    STOWAGE_SESSION_TTL: '2h',
    STOWAGE_SESSION_MAX: '5h',
    STOWAGE_LOGIN_FAILURES_PER_USER: String(limits.perUser),
    STOWAGE_LOGIN_FAILURES_PER_ADDRESS: String(limits.perAddress),
    STOWAGE_LOGIN_WINDOW: `${limits.windowSeconds}s`,
    STOWAGE_TRUSTED_PROXIES: `${trustedProxy}/32`,
  });
  database = new pg.Client({ connectionString: system.databaseUrl });
  await database.connect();
  rootPassword = /with the password (\S+)/.exec(system.output())?.[1] ?? '';
  root = await logIn(system.url, 'captain', rootPassword);
});

afterAll(async () => {
  await database.end();
  await system.close();
});

/** An address of this machine that no other test of this file failed from. */
function freshAddress(): string {
  lastAddress += 1;
  return `127.0.0.${lastAddress}`;
}

function attempt(username: string, password: string, from: string, headers: [string, string][] = []): Promise<Answer> {
  return postFrom(system.url, '/api/auth/login', { username, password }, from, headers);
}

async function failTimes(count: number, username: string, from: string): Promise<void> {
  for (let i = 0; i < count; i += 1)
    expectProblem(await attempt(username, `wrong ${i}`, from), 401, 'invalid_credentials');
}

async function makeUser(role: string = 'viewer'): Promise<{ id: string; username: string; password: string }> {
  const username = uniqueName('user');
  const password = `password of ${username}`;
  const { json } = expectStatus(await root.post('/api/users', { username, password, role }), 201);
  return { id: json['id'], username, password };
}

describe('The first admin', () => {
  test('gets a random password that is shown once where none was set', async () => {
    expect(rootPassword).toMatch(/^[\w-]{20,}$/);
    const { rows } = await database.query(
      'select username, role, disabled from identity.users order by created_at limit 1',
    );
    expect(rows).toEqual([{ username: 'captain', role: 'admin', disabled: false }]);
    expect(system.output().split(rootPassword)).toHaveLength(2);
  });

  test('passwords are kept as Argon2id of 19 MiB, two passes, with a salt of their own', async () => {
    await makeUser();
    const { rows } = await database.query<{ password_hash: string }>('select password_hash from identity.users');
    const salts = rows.map(({ password_hash: hash }) => {
      const match = /^\$argon2id\$v=19\$m=(\d+),t=(\d+),p=(\d+)\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$/.exec(hash);
      expect(Number(match?.[1])).toBeGreaterThanOrEqual(19_456);
      expect(Number(match?.[2])).toBeGreaterThanOrEqual(2);
      expect(Number(match?.[3])).toBeGreaterThanOrEqual(1);
      expect(Buffer.from(match?.[4] ?? '', 'base64').length).toBeGreaterThanOrEqual(16);
      expect(Buffer.from(match?.[5] ?? '', 'base64').length).toBeGreaterThanOrEqual(32);
      return match?.[4];
    });
    expect(new Set(salts).size).toBe(salts.length);
  });

  test('the last enabled admin can not be removed, lowered or disabled', async () => {
    const { id } = (await root.get('/api/auth/me')).json['user'];
    expectProblem(await root.delete(`/api/users/${id}`), 409, 'state_conflict');
    expectProblem(await root.call('PATCH', `/api/users/${id}`, { body: { role: 'editor' } }), 409, 'state_conflict');
    expectProblem(await root.call('PATCH', `/api/users/${id}`, { body: { disabled: true } }), 409, 'state_conflict');
    const disabled = await makeUser('admin');
    expectStatus(await root.call('PATCH', `/api/users/${disabled.id}`, { body: { disabled: true } }), 200);
    expectProblem(await root.delete(`/api/users/${id}`), 409, 'state_conflict');
    expectStatus(await root.get('/api/auth/me'), 200);
  });

  test('of two admins who remove each other at the same moment, one stays', async () => {
    const { id } = (await root.get('/api/auth/me')).json['user'];
    const second = await makeUser('admin');
    const other = await logIn(system.url, second.username, second.password);
    const body = { role: 'viewer' };
    await Promise.all([
      root.call('PATCH', `/api/users/${second.id}`, { body }),
      other.call('PATCH', `/api/users/${id}`, { body }),
    ]);
    const { rows } = await database.query(`select username from identity.users where role = 'admin' and not disabled`);
    expect(rows).toHaveLength(1);
    await database.query(`update identity.users set role = 'admin' where id = $1`, [id]);
    root = await logIn(system.url, 'captain', rootPassword);
  });
});

describe('Sessions', () => {
  async function ageSession(client: Client, age: { used?: string; made?: string }): Promise<void> {
    const hash = hashOf(client);
    const { rowCount } = await database.query(
      `update identity.sessions set last_used_at = now() - $2::interval, created_at = now() - $3::interval where token_hash = $1`,
      [hash, age.used ?? '0s', age.made ?? age.used ?? '0s'],
    );
    expect(rowCount).toBe(1);
  }

  function hashOf(client: Client): Buffer {
    return createHash('sha256')
      .update(client.token ?? '')
      .digest();
  }

  test('the database holds a hash of the token, and the token nowhere', async () => {
    const client = await logInAs(root, 'viewer', uniqueName('user'));
    const { rows } = await database.query('select id from identity.sessions where token_hash = $1', [hashOf(client)]);
    expect(rows).toEqual([{ id: (await client.get('/api/auth/me')).json['session'].id }]);
    const tables = await database.query<{ name: string }>(
      `select format('%I.%I', schemaname, tablename) as name from pg_tables where schemaname not in ('pg_catalog', 'information_schema')`,
    );
    for (const { name } of tables.rows) {
      const found = await database.query(`select count(*)::int as n from ${name} t where t::text like $1`, [
        `%${client.token?.slice(4)}%`,
      ]);
      expect({ name, n: found.rows[0].n }).toEqual({ name, n: 0 });
    }
    expect(system.output()).not.toContain(client.token);
  });

  test('the settings say how long a token lives', async () => {
    const { json } = await attempt('captain', rootPassword, '127.0.0.1');
    expect(json['expires_in']).toBeGreaterThan(2 * 3600 - 10);
    expect(json['expires_in']).toBeLessThanOrEqual(2 * 3600);
  });

  test('a token that was not used for that long is dead', async () => {
    const client = await logInAs(root, 'viewer', uniqueName('user'));
    await ageSession(client, { used: '119 minutes' });
    expectStatus(await client.get('/api/auth/me'), 200);
    await ageSession(client, { used: '2 hours 1 second' });
    expectProblem(await client.get('/api/auth/me'), 401, 'unauthenticated');
  });

  test('each use makes it live on', async () => {
    const client = await logInAs(root, 'viewer', uniqueName('user'));
    await ageSession(client, { used: '90 minutes' });
    const { json } = expectStatus(await client.get('/api/auth/me'), 200);
    const left = Date.parse(json['session'].expires_at) - Date.now();
    expect(left).toBeGreaterThan(1.99 * hourMs);
    const { rows } = await database.query(
      `select now() - last_used_at < interval '30 seconds' as fresh from identity.sessions where token_hash = $1`,
      [hashOf(client)],
    );
    expect(rows).toEqual([{ fresh: true }]);
  });

  test('a use within the same minute writes nothing', async () => {
    const client = await logInAs(root, 'viewer', uniqueName('user'));
    await ageSession(client, { used: '30 seconds' });
    const look = async (): Promise<unknown> =>
      (await database.query('select last_used_at from identity.sessions where token_hash = $1', [hashOf(client)]))
        .rows[0];
    const before = await look();
    expectStatus(await client.get('/api/auth/me'), 200);
    expect(await look()).toEqual(before);
  });

  test('no use makes it live longer than the longest life', async () => {
    const client = await logInAs(root, 'viewer', uniqueName('user'));
    await ageSession(client, { used: '2 minutes', made: '4 hours 30 minutes' });
    const { json } = expectStatus(await client.get('/api/auth/me'), 200);
    const left = Date.parse(json['session'].expires_at) - Date.now();
    expect(left).toBeLessThanOrEqual(0.5 * hourMs);
    await ageSession(client, { used: '0s', made: '5 hours 1 second' });
    expectProblem(await client.get('/api/auth/me'), 401, 'unauthenticated');
  });

  test('logging in sweeps the user’s dead sessions', async () => {
    const user = await makeUser();
    const old = await logIn(system.url, user.username, user.password);
    await ageSession(old, { used: '3 hours' });
    await logIn(system.url, user.username, user.password);
    const { rows } = await database.query('select count(*)::int as n from identity.sessions where user_id = $1', [
      user.id,
    ]);
    expect(rows).toEqual([{ n: 1 }]);
  });

  test('a token lives on over a restart of everything, and the first password is not shown again', async () => {
    await system.stop();
    await system.restart();
    expectStatus(await root.get('/api/auth/me'), 200);
    expect(system.output()).not.toMatch(/First start/);
  });
});

describe('Failed logins', () => {
  test('an unknown user, a wrong password and a disabled user get the same answer', async () => {
    const user = await makeUser();
    const disabled = await makeUser();
    expectStatus(await root.call('PATCH', `/api/users/${disabled.id}`, { body: { disabled: true } }), 200);
    const from = freshAddress();
    const answers = [
      await attempt(user.username, 'wrong', from),
      await attempt('nobody-of-this-name', 'wrong', from),
      await attempt(disabled.username, disabled.password, from),
      await attempt('', '', from),
      await attempt(user.username, user.password.slice(0, -1), from),
      await attempt(user.username.toUpperCase(), user.password, from),
      await attempt('x'.repeat(300), 'y'.repeat(300), from),
      await attempt('nul\u0000byte', 'nul\u0000byte', from),
    ];
    const bodies = answers.map((answer) => {
      const { request_id: _id, ...body } = expectProblem(answer, 401, 'invalid_credentials');
      expect(answer.headers.get('www-authenticate')).toMatch(/^Bearer\b/);
      return body;
    });
    expect(new Set(bodies.map((body) => JSON.stringify(body))).size).toBe(1);
  });

  test('too many for one name from one address are 429, even with the right password', async () => {
    const user = await makeUser();
    const from = freshAddress();
    await failTimes(limits.perUser, user.username, from);
    const answer = await attempt(user.username, user.password, from);
    expectProblem(answer, 429, 'rate_limited');
    expect(expectRetryAfter(answer)).toBeLessThanOrEqual(limits.windowSeconds);
  });

  test('they keep out neither the same name elsewhere nor another name here', async () => {
    const user = await makeUser();
    const from = freshAddress();
    await failTimes(limits.perUser, user.username, from);
    expectProblem(await attempt(user.username, user.password, from), 429, 'rate_limited');
    expectStatus(await attempt(user.username, user.password, freshAddress()), 200);
    const other = await makeUser();
    expectStatus(await attempt(other.username, other.password, from), 200);
  });

  test('a login that goes well starts the count of that name anew', async () => {
    const user = await makeUser();
    const from = freshAddress();
    await failTimes(limits.perUser - 1, user.username, from);
    expectStatus(await attempt(user.username, user.password, from), 200);
    await failTimes(limits.perUser - 1, user.username, from);
    expectStatus(await attempt(user.username, user.password, from), 200);
  });

  test('parallel guesses do not slip by', async () => {
    const user = await makeUser();
    const from = freshAddress();
    const answers = await Promise.all(
      Array.from({ length: limits.perUser + 4 }, (_, i) => attempt(user.username, `guess ${i}`, from)),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([401, 401, 401, 401, 429, 429, 429, 429]);
  });

  test('too many from one address are 429 for every name', async () => {
    const from = freshAddress();
    for (let i = 0; i < limits.perAddress; i += 1) await failTimes(1, uniqueName('nobody'), from);
    const user = await makeUser();
    const answer = await attempt(user.username, user.password, from);
    expectProblem(answer, 429, 'rate_limited');
    expectRetryAfter(answer);
    expectStatus(await attempt(user.username, user.password, freshAddress()), 200);
  });

  test('the limit ends with its window', async () => {
    const user = await makeUser();
    const from = freshAddress();
    await failTimes(limits.perUser, user.username, from);
    expectProblem(await attempt(user.username, user.password, from), 429, 'rate_limited');
    await database.query(
      `update identity.login_attempts set window_started_at = window_started_at - $1 * interval '1 second'`,
      [limits.windowSeconds],
    );
    expectStatus(await attempt(user.username, user.password, from), 200);
  });

  test('X-Forwarded-For of anyone changes nothing', async () => {
    const user = await makeUser();
    const from = freshAddress();
    for (let i = 0; i < limits.perUser; i += 1) {
      const headers: [string, string][] = [
        ['X-Forwarded-For', `198.51.100.${i}`],
        ['Forwarded', `for=198.51.100.${i}`],
        ['X-Real-IP', `198.51.100.${i}`],
      ];
      expectProblem(await attempt(user.username, 'wrong', from, headers), 401, 'invalid_credentials');
    }
    expectProblem(
      await attempt(user.username, user.password, from, [['X-Forwarded-For', '198.51.100.99']]),
      429,
      'rate_limited',
    );
  });

  test('behind a trusted proxy the address that the proxy saw counts, not what the client wrote before it', async () => {
    const user = await makeUser();
    for (let i = 0; i < limits.perUser; i += 1) {
      const headers: [string, string][] = [['X-Forwarded-For', `198.51.100.${i}, 203.0.113.7`]];
      expectProblem(await attempt(user.username, 'wrong', trustedProxy, headers), 401, 'invalid_credentials');
    }
    expectProblem(
      await attempt(user.username, user.password, trustedProxy, [['X-Forwarded-For', '198.51.100.99, 203.0.113.7']]),
      429,
      'rate_limited',
    );
    expectStatus(await attempt(user.username, user.password, trustedProxy, [['X-Forwarded-For', '203.0.113.8']]), 200);
  });

  test('the database keeps neither names nor addresses of those who failed', async () => {
    const name = uniqueName('secretive');
    await failTimes(1, name, freshAddress());
    const { rows } = await database.query<{ row: string }>('select a::text as row from identity.login_attempts a');
    expect(rows.length).toBeGreaterThan(0);
    for (const { row } of rows) expect(row).not.toMatch(/secretive|127\.0\.0/);
  });
});
