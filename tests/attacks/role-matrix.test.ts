import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import pg from 'pg';
import { databaseText } from '@stowage/tests/support/canaries';
import { Client, expectStatus, logIn, logInAs } from '@stowage/tests/support/client';
import type { Answer, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { expectProblem } from '@stowage/tests/support/problems';
import { accessOfRoutes, unknownId } from '@stowage/tests/support/routes';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';
import { inBatches } from '@stowage/tests/support/tree';
import { sendValid, validRequests } from '@stowage/tests/support/valid-requests';
import type { Maker, ValidRequest } from '@stowage/tests/support/valid-requests';

const roles = ['viewer', 'editor', 'admin'] as const;
type Role = (typeof roles)[number];
const closed = Object.keys(accessOfRoutes).filter((route) => accessOfRoutes[route] !== 'anybody');
const rank = (route: string): number => roles.findIndex((role) => role === accessOfRoutes[route]);
let system: System;
let database: pg.Client;
let maker: Maker;
let clients: Record<Role, Client>;
/** A valid request for each route, about real things. */
const requests = new Map<string, ValidRequest>();

beforeAll(async () => {
  system = await startSystem(mode(), { STOWAGE_LOGIN_FAILURES_PER_ADDRESS: '1000' });
  database = new pg.Client({ connectionString: system.databaseUrl });
  await database.connect();
  const admin = await logIn(system.url);
  const editor = await logInAs(admin, 'editor', 'editor');
  clients = { admin, editor, viewer: await logInAs(admin, 'viewer', 'viewer') };
  maker = { admin, owner: editor, database };
  for (const route of closed) requests.set(route, await prepare(route));
});

afterAll(async () => {
  await database.end();
  await system.close();
});

async function prepare(route: string): Promise<ValidRequest> {
  const make = validRequests[route];
  if (!make) throw new Error(`${route} has no valid request`);
  return make(maker);
}

function send(client: Client, route: string, id?: string): Promise<Answer> {
  const request = requests.get(route);
  if (!request) throw new Error(`${route} was not prepared`);
  return sendValid(client, route, request, id ?? request.id);
}

/** What a problem says, but for the one thing that differs from request to request. */
function saidBy({ status, headers, json }: Answer): unknown {
  const names = [...headers.keys()].filter((name) => name !== 'connection' && name !== 'keep-alive').sort();
  return { status, names, json: { ...json, request_id: null }, asked: headers.get('www-authenticate') };
}

/** All that people own, as the database has it. */
async function everything(): Promise<Json> {
  const texts = await databaseText(system.databaseUrl);
  const owned = ['identity.users', 'identity.system_mode', 'catalog.nodes', 'upload.uploads', 'placement.policies'];
  return Object.fromEntries(owned.map((table) => [table, texts.get(table)]));
}

describe('A token that is dead', () => {
  const dead = new Map<string, string>();

  async function freshUser(): Promise<{ id: string; client: Client }> {
    const client = await logInAs(maker.admin, 'admin', uniqueName('user'));
    return { id: (await client.get('/api/auth/me')).json['user'].id, client };
  }

  function note(what: string, { token }: Client): void {
    if (token === null) throw new Error('there is no token');
    dead.set(what, token);
  }

  async function age(client: Client, column: 'last_used_at' | 'created_at', by: string): Promise<void> {
    const { id } = (await client.get('/api/auth/me')).json['session'];
    await database.query(`update identity.sessions set ${column} = now() - $2::interval where id = $1`, [id, by]);
  }

  beforeAll(async () => {
    const change = async (what: string, body: Json): Promise<void> => {
      const { id, client } = await freshUser();
      expectStatus(await maker.admin.call('PATCH', `/api/users/${id}`, { body }), 200);
      note(what, client);
    };
    const revoked = (await freshUser()).client;
    expectStatus(await revoked.post('/api/auth/logout'), 204);
    note('revoked by logging out', revoked);
    const idle = (await freshUser()).client;
    await age(idle, 'last_used_at', '13 hours');
    note('unused for too long', idle);
    const old = (await freshUser()).client;
    await age(old, 'created_at', '8 days');
    note('too old', old);
    await change('of a disabled user', { disabled: true });
    await change('of a user with a new password', { password: 'another good password' });
    await change('of a user with a new role', { role: 'editor' });
    const removed = await freshUser();
    expectStatus(await maker.admin.delete(`/api/users/${removed.id}`), 204);
    note('of a removed user', removed.client);
    const alive = String(maker.admin.token);
    dead.set('that never was', `stw_${'A'.repeat(43)}`);
    dead.set('cut short', alive.slice(0, -1));
    dead.set('with a character more', `${alive}A`);
    dead.set('in other case', alive.toUpperCase());
    dead.set('of nothing', 'stw_');
    dead.set('made of digits', '0'.repeat(47));
  });

  test('opens no route, whatever made it so, and every answer is the same one', async () => {
    const before = await everything();
    const none = saidBy(await new Client(system.url, 'x').get('/api/auth/me'));
    expect(none).toMatchObject({ status: 401, asked: 'Bearer', json: { code: 'unauthenticated' } });
    for (const [what, token] of dead) {
      const client = new Client(system.url, token);
      const answers = await inBatches(closed, async (route) => ({ route, answer: await send(client, route) }));
      for (const { route, answer } of answers) {
        const expected = JSON.parse(JSON.stringify(none));
        if (route.startsWith('HEAD ')) expect(answer.bytes).toHaveLength(0);
        const said = JSON.parse(JSON.stringify(saidBy(answer)));
        // Only these two say more or less than the others: tus names its version, HEAD has no body.
        expected.names = said.names
          .filter((name: string) => name === 'tus-resumable')
          .concat(expected.names)
          .sort();
        if (route.startsWith('HEAD ')) expected.json = { request_id: null };
        expect({ what, route, said }).toEqual({ what, route, said: expected });
      }
    }
    expect(await everything()).toEqual(before);
  });
});

describe('A role that is too low', () => {
  test.each(['viewer', 'editor'] as const)('a %s is 403 for real things too, and nothing changes', async (role) => {
    const before = await everything();
    const refused = closed.filter((route) => rank(route) > roles.indexOf(role));
    expect(refused.length).toBeGreaterThan(10);
    for (const route of refused) {
      const answers = [await send(clients[role], route)];
      if (route.includes('{'))
        answers.push(await send(clients[role], route, unknownId), await send(clients[role], route, 'x'));
      expect({ route, statuses: answers.map(({ status }) => status) }).toEqual({
        route,
        statuses: answers.map(() => 403),
      });
      // Who may not know learns nothing of what there is.
      for (const answer of answers.slice(1)) expect(saidBy(answer)).toEqual(saidBy(answers[0] ?? answer));
    }
    expect(await everything()).toEqual(before);
  });
});

describe('Ids', () => {
  const malformed = [
    'x',
    '0',
    '..%2f..%2fetc%2fpasswd',
    '%2e%2e',
    '%00',
    `${unknownId}%00`,
    `${unknownId}.`,
    `%20${unknownId}`,
    unknownId.toUpperCase(),
    unknownId.replaceAll('-', ''),
    `{${unknownId}}`,
    `urn:uuid:${unknownId}`,
    '00000000-0000-0000-0000-000000000000',
    'f47ac10b-58cc-4372-a567-0e02b2c3d479',
    "'%20or%20'1'='1",
    '*',
    'undefined',
    'null',
    '__proto__',
    'x'.repeat(190),
    '%F0%9F%98%80',
  ];
  const withId = closed.filter((route) => route.includes('_id}'));

  test('that name nothing, or can be none, are the same 404 on every route', async () => {
    const before = await everything();
    for (const route of withId) {
      const unknown = await send(clients.admin, route, unknownId);
      if (!route.startsWith('HEAD ')) expectProblem(unknown, 404, 'not_found');
      const answers = await inBatches(malformed, (id) => send(clients.admin, route, id));
      const statuses = answers.map(({ status }, n) => `${malformed[n]}: ${status}`);
      expect({ route, statuses }).toEqual({ route, statuses: malformed.map((id) => `${id}: 404`) });
    }
    expect(await everything()).toEqual(before);
  });

  test('of one kind of thing open no route of another', async () => {
    const before = await everything();
    const idOf = (route: string): string => String(requests.get(route)?.id);
    const ids = {
      user_id: idOf('DELETE /api/users/{user_id}'),
      directory_id: idOf('GET /api/directories/{directory_id}'),
      file_id: idOf('GET /api/files/{file_id}'),
      upload_id: idOf('GET /api/uploads/{upload_id}'),
      backend_id: idOf('GET /api/backends/{backend_id}'),
      job_id: idOf('GET /api/jobs/{job_id}'),
    };
    for (const route of withId) {
      const own = /\{(\w+)\}/.exec(route)?.[1];
      const unknown = saidBy(await send(clients.admin, route, unknownId));
      for (const [kind, id] of Object.entries(ids).filter(([name]) => name !== own)) {
        const said = saidBy(await send(clients.admin, route, id));
        expect({ route, kind, said }).toEqual({ route, kind, said: unknown });
      }
    }
    expect(await everything()).toEqual(before);
  });

  test('of another user’s upload are those of no upload, with the same answer, for every role', async () => {
    const stranger = await logInAs(maker.admin, 'editor', uniqueName('stranger'));
    const ofUploads = withId.filter((route) => route.includes('{upload_id}'));
    const seen = ['HEAD /files/{upload_id}', 'GET /api/uploads/{upload_id}'];
    const before = await everything();
    for (const route of ofUploads) {
      const unknown = saidBy(await send(stranger, route, unknownId));
      expect({ route, said: saidBy(await send(stranger, route)) }).toEqual({ route, said: unknown });
      expect(unknown).toMatchObject({ status: 404 });
      // An admin may look, and no more.
      const said = await send(clients.admin, route);
      if (seen.includes(route)) expectStatus(said, 200);
      else expect({ route, said: saidBy(said) }).toEqual({ route, said: unknown });
    }
    expect(await everything()).toEqual(before);
  });
});

describe('The lowest role that suffices', () => {
  test('carries out every one of these requests: each refusal above was for who asked', async () => {
    // What ends a session, empties the bin or gives up an upload comes last.
    const last = ['DELETE /api/files/recycle-bin', 'POST /api/auth/logout'];
    const order = [...closed.filter((route) => !last.includes(route)), ...last];
    for (const route of order) {
      const role = roles[rank(route)] ?? 'admin';
      if (requests.get(route)?.shortLived) requests.set(route, await prepare(route));
      const { status, bytes } = await send(clients[role], route);
      const expected = { route, role, right: true, body: '' };
      const right = status >= 200 && status < 300;
      expect({ route, role, right, body: right ? '' : bytes.toString() }).toEqual(expected);
    }
  });
});
