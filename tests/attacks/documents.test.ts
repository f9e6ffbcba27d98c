import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { request } from 'node:http';
import { Readable } from 'node:stream';
import { createGzip } from 'node:zlib';
import pg from 'pg';
import { logIn, until } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { MemoryWatch } from '@stowage/tests/support/process-memory';
import { startSystem } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';

const path = '/api/exports/metadata/validate';
const limitMiB = 64;
/** What a document may take of memory beyond what an idle process has, whatever its size. */
const memoryMiB = 250;
let system: System;
let admin: Client;
let database: pg.Pool;
let memory: MemoryWatch;

beforeAll(async () => {
  system = await startSystem(mode(), { STOWAGE_DOCUMENT_LIMIT: `${limitMiB}MiB`, STOWAGE_IDLE_TIMEOUT: '5s' });
  admin = await logIn(system.url);
  database = new pg.Pool({ connectionString: system.databaseUrl, max: 1 });
  memory = await MemoryWatch.start(new Map([['service', await system.pidOf('export')]]));
});
afterAll(async () => {
  memory.stop();
  await database.end();
  await system.close();
});
afterEach(async () => {
  await until(async () => (await stagedTables()) === 0);
  expect((await memory.growth())['service']).toBeLessThan(memoryMiB);
});

async function stagedTables(): Promise<number> {
  const { rowCount } = await database.query(`select from pg_class where relkind = 'r' and relname like 'staged\\_%'`);
  return rowCount ?? 0;
}

/** Sends a body as it is made; gives the answer, which may come before its end. */
function send(pieces: Iterable<string>, options: { gzip?: boolean } = {}): Promise<Pick<Answer, 'status' | 'json'>> {
  const { promise, resolve, reject } = Promise.withResolvers<Pick<Answer, 'status' | 'json'>>();
  const headers = {
    authorization: `Bearer ${admin.token}`,
    'content-type': 'application/json',
    ...(options.gzip ? { 'content-encoding': 'gzip' } : {}),
  };
  const call = request(`${system.url}${path}`, { method: 'POST', headers }, (answer) => {
    const status = answer.statusCode ?? 0;
    answer.toArray().then((bytes) => resolve({ status, json: JSON.parse(Buffer.concat(bytes).toString()) }), reject);
  });
  call.on('error', reject);
  const body = Readable.from(pieces, { objectMode: false });
  if (options.gzip) body.pipe(createGzip({ level: 9 })).pipe(call);
  else body.pipe(call);
  return promise;
}

const piece = 2 ** 16;

/** A text with a long middle, made while it is sent. */
function* long(start: string, middle: string, bytes: number, end = ''): Generator<string> {
  yield start;
  const many = middle.repeat(Math.ceil(piece / middle.length));
  for (let sent = 0; sent < bytes; sent += many.length) yield many;
  yield end;
}

function codes({ json }: { json: Json }): unknown[] {
  return [...new Set(json['errors'].map(({ code }: Json) => code))];
}

const MiB = 2 ** 20;

describe('A document that is made to hurt is refused, and takes no more memory than others:', () => {
  test('a gzip bomb, at the limit of its expanded size', async () => {
    for (const [start, middle] of [
      ['{"files":[', ' '],
      [' ', ' '],
      ['{"files":[', '0,'],
    ] as const) {
      expect(await send(long(start, middle, 4 * limitMiB * MiB), { gzip: true })).toMatchObject({
        json: expect.objectContaining(middle === ' ' ? { code: 'payload_too_large' } : {}),
      });
    }
  });

  test('one that is longer than the limit as it is', async () => {
    const { status } = await send(long('{"files":[', ' ', (limitMiB + 1) * MiB, ']}'));
    expect(status).toBe(413);
  });

  test('one that is nested deep, or has texts, keys or records without end', async () => {
    const cases: readonly (readonly [string, string, string])[] = [
      ['{"files":[', '[', 'too_deep'],
      ['{"files":[', '{"a":', 'too_deep'],
      ['{"colour":', '[', 'too_deep'],
      ['{"files":[{"name":"', 'x', 'too_large'],
      ['{"files":["', '\\n', 'too_large'],
      ['{"colour":"', 'x', 'too_large'],
      ['{"', 'x', 'too_large'],
      ['{"files":[[', '0,', 'too_large'],
      ['{"files":[{"a":0', ',"a":0', 'too_large'],
      ['{"files":', '1', 'too_large'],
    ];
    for (const [start, middle, code] of cases) {
      // What is not read any more is dropped for a while only, and the limit of a value is 16 MiB.
      const isValue = code === 'too_large' && start !== '{"' && !middle.includes('0');
      const bytes = isValue ? 20 * MiB : 8 * MiB;
      const answer = await send(long(start, middle, bytes));
      expect({ start, middle, status: answer.status, codes: codes(answer) }).toEqual({
        start,
        middle,
        status: 200,
        codes: [code],
      });
    }
  });

  test('one with millions of errors: a thousand are told', async () => {
    for (const [start, middle] of [
      ['{"files":[0', ',0'],
      ['{"files":[{}', ',{}'],
      ['{"a":0', ',"b":0'],
    ] as const) {
      const { status, json } = await send(long(start, middle, 8 * MiB, middle.startsWith(',"') ? '}' : ']}'));
      expect({ start, status, count: json['errors'].length }).toEqual({ start, status: 200, count: 1_000 });
    }
  });

  test('one that comes so slowly that it stands still', async () => {
    const call = request(`${system.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${admin.token}`, 'content-type': 'application/json' },
    });
    const ended = new Promise((resolve) => call.once('error', resolve).once('close', resolve));
    call.write('{"files":[');
    await ended;
  });

  test('some at a time: more than two wait for another time', async () => {
    const calls = [0, 1].map(() => {
      const headers = { authorization: `Bearer ${admin.token}`, 'content-type': 'application/json' };
      const call = request(`${system.url}${path}`, { method: 'POST', headers });
      call.on('error', () => undefined).write('{"files":[');
      return call;
    });
    const notStill = setInterval(() => calls.forEach((call) => call.write(' ')), 100);
    await until(async () => (await stagedTables()) >= 12);
    expect(await send(['{}'])).toMatchObject({ status: 503, json: { code: 'unavailable' } });
    clearInterval(notStill);
    for (const call of calls) call.destroy();
  });
});

test('What is in an archive is not looked at', async () => {
  for (const type of ['application/zip', 'application/x-tar', 'application/gzip', 'application/x-ndjson']) {
    const answer = await admin.call('POST', path, { raw: 'PK\u0003\u0004', headers: { 'content-type': type } });
    expect(answer.status).toBe(415);
  }
});
