import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { startBeside } from '../support/beside.ts';
import type { Beside } from '../support/beside.ts';
import { Client, expectStatus, logIn, sha256, until } from '../support/client.ts';
import type { Answer } from '../support/client.ts';
import { FaultReport } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { System } from '../support/system.ts';
import { append, contentOf, finalize, makeUpload, offsetOf, openAppend } from '../support/uploads.ts';
import type { MadeUpload } from '../support/uploads.ts';

const kibibyte = 1024;
const report = new FaultReport('Two processes of gateway and of upload on one database');
afterAll(() => report.print());

describe('two gateways, each with an upload process of its own', () => {
  const random = new Random(chooseSeed());
  let system: System;
  let uploads: Beside;
  let gateway: Beside;
  let first: Client;
  let second: Client;
  let bytes: Buffer;
  let upload: MadeUpload;

  beforeAll(async () => {
    process.stderr.write(`side by side: STOWAGE_TEST_SEED=${random.seed}\n`);
    system = await startSystem('services', { STOWAGE_UPLOAD_LEASE: '2s', STOWAGE_LOG_LEVEL: 'error' });
    uploads = await startBeside(system, 'upload');
    gateway = await startBeside(system, 'gateway', uploads.addresses);
    first = await logIn(system.url);
    second = new Client(gateway.url, first.token);
  });

  afterAll(async () => {
    await gateway?.close();
    await uploads?.close();
    await system?.close();
  });

  beforeEach(async () => {
    bytes = random.bytes(2_000 * kibibyte);
    upload = await makeUpload(first, { length: bytes.length, metadata: { filename: uniqueName() } });
  });

  async function expectWhole(): Promise<void> {
    const made = await finalize(second, upload);
    expect([200, 201]).toContain(made.status);
    expect(made.json['sha256']).toBe(sha256(bytes));
    expect(sha256(await contentOf(first, String(made.json['id'])))).toBe(sha256(bytes));
  }

  test('an upload that is written through both in turn has every byte once, in its place', async () => {
    let offset = 0;
    let requests = 0;
    while (offset < bytes.length) {
      const [writer, other] = requests % 2 === 0 ? [first, second] : [second, first];
      const end = Math.min(bytes.length, offset + random.integer(1, 200 * kibibyte));
      const answer = expectStatus(await append(writer, upload.path, offset, bytes.subarray(offset, end)), 204);
      expect(Number(answer.headers.get('upload-offset'))).toBe(end);
      if (end < bytes.length) expect(await offsetOf(other, upload.path)).toBe(end);
      offset = end;
      requests += 1;
    }
    await expectWhole();
    report.add('in turn', { requests });
  });

  test('two who write at once, through one each, are never both right about the same bytes', async () => {
    const counts: Record<string, number> = {};
    const noted = (answer: Answer): Answer => {
      counts[answer.status] = (counts[answer.status] ?? 0) + 1;
      expect([204, 409, 423]).toContain(answer.status);
      return answer;
    };
    let offset = 0;
    let rounds = 0;
    while (offset < bytes.length) {
      const ends = [first, second].map(() => Math.min(bytes.length, offset + random.integer(1, 300 * kibibyte)));
      const answers = await Promise.all(
        [first, second].map((writer, index) =>
          append(writer, upload.path, offset, bytes.subarray(offset, ends[index])).then(noted),
        ),
      );
      const told = answers
        .filter(({ status }) => status === 204)
        .map(({ headers }) => Number(headers.get('upload-offset')));
      // A writer that is stopped by a newer one leaves what it wrote, so both may be right only one after the other.
      const seen = await offsetOf(rounds % 2 === 0 ? first : second, upload.path);
      for (const one of told) expect(seen).toBeGreaterThanOrEqual(one);
      expect(seen).toBeLessThanOrEqual(Math.max(...ends));
      expect(new Set(told).size).toBe(told.length);
      offset = seen;
      rounds += 1;
      if (rounds > 200) throw new Error('no progress');
    }
    await expectWhole();
    report.add('at once', { rounds, answers: JSON.stringify(counts) });
  });

  test('a writer whose upload process is killed blocks the other for no longer than its lease', async () => {
    const connection = await openAppend(second, upload.path, { offset: 0, length: bytes.length });
    await connection.send(bytes.subarray(0, 1_500 * kibibyte));
    await until(async () => (await offsetOf(first, upload.path)) > 0);
    uploads.process.kill('SIGKILL');
    const start = performance.now();
    const answer = await until(async () => {
      const offset = await offsetOf(first, upload.path);
      expect(offset).toBeLessThanOrEqual(1_500 * kibibyte);
      const tried = await append(first, upload.path, offset, bytes.subarray(offset));
      return tried.status === 204 ? tried : null;
    });
    connection.cut();
    expect(Number(answer.headers.get('upload-offset'))).toBe(bytes.length);
    const tookMs = Math.round(performance.now() - start);
    await uploads.close();
    await gateway.close();
    uploads = await startBeside(system, 'upload');
    gateway = await startBeside(system, 'gateway', uploads.addresses);
    second = new Client(gateway.url, first.token);
    await expectWhole();
    report.add('one killed in the middle', { 'the other went on after ms': tookMs });
  });

  test('a finalize asked of both at once makes one file', async () => {
    expectStatus(await append(first, upload.path, 0, bytes), 204);
    const answers = await Promise.all([finalize(first, upload), finalize(second, upload)]);
    const settled = await Promise.all(
      [first, second].map((client) =>
        until(async () => {
          const answer = await finalize(client, upload);
          return answer.status === 200 ? answer : null;
        }),
      ),
    );
    expect(answers.filter(({ status }) => status === 201).length).toBeLessThanOrEqual(1);
    expect(new Set([...settled.map(({ json }) => json['id'])]).size).toBe(1);
    await expectWhole();
  });

  test('a logout on one is known to the other at once, and so is a write', async () => {
    for (let round = 0; round < faultSizes.logouts; round += 1) {
      const [one, other] = round % 2 === 0 ? [system.url, gateway.url] : [gateway.url, system.url];
      const here = await logIn(one);
      const there = new Client(other, here.token);
      expectStatus(await there.get('/api/auth/me'), 200);
      const name = uniqueName();
      const made = await here.makeDirectory(name);
      expect(expectStatus(await there.get(`/api/directories/${String(made['id'])}`), 200).json['name']).toBe(name);
      expectStatus(await here.post('/api/auth/logout'), 204);
      expectStatus(await there.get('/api/auth/me'), 401);
      expectStatus(await here.get('/api/auth/me'), 401);
    }
    report.add('logouts', { rounds: faultSizes.logouts, 'accepted afterwards': 0 });
  });
});
