import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import { logIn, until } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { startSystem } from '../support/system.ts';
import type { System } from '../support/system.ts';
import { makeUpload, openAppend } from '../support/uploads.ts';
import { full, report, sized } from './support/size.ts';
import { beSlow } from './support/slow-client.ts';
import type { SlowClient, Slowness } from './support/slow-client.ts';
import { askSteadily, openDescriptors, percentile } from './support/steady-load.ts';

/** In CI they are shorter than the defaults, so that their end is seen in time. */
const limits = full ? { headers: 10, json: 30, idle: 60 } : { headers: 3, json: 3, idle: 5 };
const slowClients = sized(500, 5_000);
/** Each of these holds what it does not read. */
const silentReaders = 125;

let system: System;
let client: Client;

beforeAll(async () => {
  system = await startSystem('standalone', {
    STOWAGE_HEADERS_TIMEOUT: `${limits.headers}s`,
    STOWAGE_JSON_TIMEOUT: `${limits.json}s`,
    STOWAGE_IDLE_TIMEOUT: `${limits.idle}s`,
    STOWAGE_APPENDS_PER_USER: '5000',
    STOWAGE_UPLOADS_PER_USER: '5000',
  });
  client = await logIn(system.url);
});

afterAll(() => system?.close());

async function kinds(): Promise<Record<string, Slowness>> {
  const upload = await makeUpload(client, { length: 1_000_000, metadata: { filename: 'stands still' } });
  const file = await client.putFile('large', Buffer.alloc(32 * 1024 * 1024, 'x'));
  const common = `Host: stowage.test\r\nAuthorization: Bearer ${client.token}\r\n`;
  const json = `Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{`;
  const tus = 'Tus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\nContent-Type: application/offset+octet-stream\r\n';
  return {
    headers: { head: `GET /api/auth/me HTTP/1.1\r\n${common}`, piece: 'X-Slow: 1\r\n', everyMs: 500, reads: true },
    json: { head: `POST /api/directories HTTP/1.1\r\n${common}${json}`, piece: ' ', everyMs: 500, reads: true },
    body: {
      head: `PATCH ${upload.path} HTTP/1.1\r\n${common}${tus}Content-Length: 1000000\r\n\r\nbytes`,
      piece: '',
      everyMs: 1_000,
      reads: true,
    },
    reader: {
      head: `GET /api/files/${file['id']}/download HTTP/1.1\r\n${common}\r\n`,
      piece: '',
      everyMs: 1_000,
      reads: false,
    },
  };
}

test(
  'slow clients are ended in time, while everybody else is answered and a slow upload goes on',
  async () => {
    const pid = await system.pidOf('gateway');
    const slow = await kinds();
    const target = { url: system.url, path: '/api/directories/root', token: client.token, timeoutMs: 30_000 };
    let stopped = false;
    const alone = askSteadily(target, 4, () => stopped);
    await sleep(2_000);
    stopped = true;
    const before = await alone;
    const descriptors = await openDescriptors(pid);
    stopped = false;
    const working = askSteadily(target, 4, () => stopped);
    const creeping = creepingUpload((limits.idle + 3) * 1_000);
    const begun = performance.now();
    const started = new Map<string, SlowClient[]>();
    for (const [kind, slowness] of Object.entries(slow)) {
      const count = kind === 'reader' ? silentReaders : Math.floor((slowClients - silentReaders) / 3);
      started.set(
        kind,
        Array.from({ length: count }, () => beSlow(system.url, slowness)),
      );
    }
    const all = [...started.values()].flat();
    await until(async () => (await openDescriptors(pid)) > descriptors + all.length / 2);
    // The creeping upload and the four that work are still there.
    const lastDescriptors = async (): Promise<number | null> => {
      const now = await openDescriptors(pid);
      return now <= descriptors + 25 ? now : null;
    };
    await until(lastDescriptors, (limits.idle * 2 + 20) * 1_000);
    const endedAfterMs = Math.round(performance.now() - begun);
    const crept = await creeping;
    stopped = true;
    const during = await working;
    for (const one of all) one.stop();
    const longest = (kind: string): number =>
      Math.round(Math.max(...(started.get(kind) ?? []).map((one) => one.lastedMs() ?? Infinity)));
    report('slow clients', {
      clients: all.length,
      limits_s: limits,
      all_ended_after_ms: endedAfterMs,
      longest_ms: { headers: longest('headers'), json: longest('json'), body: longest('body') },
      p99_before_ms: percentile(before, 0.99),
      p99_during_ms: percentile(during, 0.99),
      answered_during: during.length,
    });
    expect(during.filter(({ status }) => status !== 200)).toEqual([]);
    expect(during.length).toBeGreaterThan(20);
    expect(percentile(during, 0.99)).toBeLessThan(2_000);
    // What a check of every second and a busy machine add.
    const grace = 5_000;
    expect(longest('headers')).toBeLessThan(limits.headers * 1_000 + grace);
    expect(longest('json')).toBeLessThan(limits.json * 1_000 + grace);
    expect(longest('body')).toBeLessThan(limits.idle * 1_000 + grace);
    // Who reads nothing is seen to be silent only at the second look.
    expect(endedAfterMs).toBeLessThan(limits.idle * 2_000 + 3 * grace);
    for (const kind of ['headers', 'json'])
      expect(new Set((started.get(kind) ?? []).map((one) => one.status()))).toEqual(new Set([408]));
    expect(crept).toEqual({ status: 204, wholeBody: true });
  },
  (limits.idle * 3 + 60) * 1_000,
);

/** An upload at 1 KiB/s, for longer than a body may stand still. */
async function creepingUpload(forMs: number): Promise<{ status: number; wholeBody: boolean }> {
  const kibibytes = Math.ceil(forMs / 1_000);
  const upload = await makeUpload(client, { length: kibibytes * 1024, metadata: { filename: 'creeps' } });
  const connection = await openAppend(client, upload.path, { offset: 0, length: kibibytes * 1024 });
  for (let sent = 0; sent < kibibytes; sent += 1) {
    await connection.send(Buffer.alloc(1024, 'c'));
    await sleep(1_000);
  }
  const answer = await connection.answer();
  connection.cut();
  return { status: answer.status, wholeBody: answer.headers['upload-offset'] === String(kibibytes * 1024) };
}
