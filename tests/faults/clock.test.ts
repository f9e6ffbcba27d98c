import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startBeside } from '../support/beside.ts';
import type { Beside } from '../support/beside.ts';
import { Client, expectStatus, logIn, sha256, until } from '../support/client.ts';
import { FaultReport } from '../support/fault-report.ts';
import { JobTable } from '../support/job-table.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { System } from '../support/system.ts';
import { append, contentOf, finalize, makeUpload, offsetOf } from '../support/uploads.ts';

/** Where Debian puts it (package libfaketime). */
const library = `/usr/lib/${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}-linux-gnu/faketime/libfaketime.so.1`;
const why = existsSync(library) ? null : 'libfaketime is not installed on this machine';
const maybe = why === null ? describe : describe.skip;
const minute = 60_000;
const lifeMs = 30 * minute;
const shifted = ['catalog', 'upload', 'placement', 'gateway'] as const;

const report = new FaultReport('R14 the clock of some services jumps');
if (why !== null) report.leftOut('all', why);
afterAll(() => report.print());

/** All that lives for half an hour must outlive a jump of a whole one. */
maybe.each(['+3600s', '-3600s'])('R14 a clock that jumps by %s', (jump) => {
  const random = new Random(chooseSeed());
  let folder: string;
  let system: System;
  let jobs: JobTable;
  let right: Client;
  let wrong: Client;
  const besides: Beside[] = [];
  const stopped: number[] = [];

  beforeAll(async () => {
    process.stderr.write(`clock ${jump}: STOWAGE_TEST_SEED=${random.seed}\n`);
    folder = await mkdtemp(join(tmpdir(), 'stowage-faults-'));
    const clock = join(folder, 'clock');
    await writeFile(clock, '+0');
    system = await startSystem('services', {
      STOWAGE_SESSION_TTL: '30m',
      STOWAGE_UPLOAD_EXPIRY: '30m',
      STOWAGE_RECYCLE_RETENTION: '30m',
      STOWAGE_JOB_LEASE: '2s',
      STOWAGE_LOG_LEVEL: 'error',
    });
    jobs = await JobTable.open(system.databaseUrl);
    const preload = {
      LD_PRELOAD: library,
      FAKETIME_TIMESTAMP_FILE: clock,
      FAKETIME_NO_CACHE: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
    };
    let addresses: Record<string, string> = {};
    for (const service of shifted) {
      const beside = await startBeside(system, service, { ...preload, ...addresses });
      besides.push(beside);
      addresses = { ...addresses, ...beside.addresses };
    }
    right = await logIn(system.url);
    await writeFile(clock, jump);
    wrong = new Client(besides.at(-1)?.url ?? '', right.token);
    // Those whose clock is right run no job, so that the others have to.
    for (const service of ['catalog', 'upload', 'placement']) stopped.push(await system.pidOf(service));
  }, 120_000);

  afterAll(async () => {
    if (why !== null) return;
    for (const pid of stopped) process.kill(pid, 'SIGCONT');
    for (const beside of besides.reverse()) await beside.close();
    await jobs?.close();
    await system?.close();
    await rm(folder, { recursive: true, force: true });
  });

  test('ends no session early, on neither side', async () => {
    expectStatus(await wrong.get('/api/auth/me'), 200);
    const there = await logIn(wrong.url);
    for (const [url, token] of [
      [system.url, there.token],
      [wrong.url, there.token],
      [system.url, right.token],
    ] as const) {
      const me = expectStatus(await new Client(url, token).get('/api/auth/me'), 200).json;
      const left = Date.parse(String(me['session']['expires_at'])) - Date.now();
      expect(Math.abs(left - lifeMs)).toBeLessThan(minute);
    }
    // The clock did jump; Node makes the text of a date once a second.
    const skewMs = await until(async () => {
      const { headers } = expectStatus(await wrong.get('/api/system/health'), 200);
      const skew = Date.parse(headers.get('date') ?? '') - Date.now();
      return Math.abs(skew) > 59 * minute ? skew : null;
    });
    report.add(jump, { 'skew in s': Math.round(skewMs / 1000) });
  });

  test('expires no upload, purges nothing and loses no job, though all jobs run by that clock', async () => {
    const bytes = random.bytes(300_000);
    const upload = await makeUpload(wrong, { length: bytes.length, metadata: { filename: uniqueName() } });
    expectStatus(await append(wrong, upload.path, 0, bytes.subarray(0, 1000)), 204);
    const kept = await wrong.putFile(uniqueName(), 'kept');
    const recycled = await wrong.putFile(uniqueName(), 'recycled');
    expectStatus(await wrong.delete(`/api/files/${String(recycled['id'])}`), 200);
    const params = await jobs.verification(String(kept['id']));
    for (const pid of stopped) process.kill(pid, 'SIGSTOP');
    const ids = [
      await jobs.insert('expire_uploads', {}),
      await jobs.insert('purge_recycle_bin', {}),
      await jobs.insert('verify_blob', params),
    ];
    for (const id of ids) {
      await until(async () => {
        await jobs.wake();
        return (await jobs.read(id)).state === 'succeeded';
      });
    }
    for (const pid of stopped) process.kill(pid, 'SIGCONT');
    expect(await offsetOf(right, upload.path)).toBe(1000);
    expectStatus(await append(right, upload.path, 1000, bytes.subarray(1000)), 204);
    const made = await until(async () => {
      const answer = await finalize(wrong, upload);
      return answer.status === 201 || answer.status === 200 ? answer.json : null;
    });
    expect(sha256(await contentOf(right, String(made['id'])))).toBe(sha256(bytes));
    expectStatus(await right.post(`/api/files/${String(recycled['id'])}/restore`), 200);
    expect((await contentOf(right, String(recycled['id']))).toString()).toBe('recycled');
    report.add(`${jump}, jobs`, { run: ids.length, 'expired or purged': 0 });
  });
});
