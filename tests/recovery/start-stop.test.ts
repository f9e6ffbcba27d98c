import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { createServer } from 'node:net';
import { chmod, chown, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client, expectStatus, logIn, sha256, until } from '../support/client.ts';
import { postmasterOf, startPlainly } from '../support/plain-start.ts';
import type { PlainStart } from '../support/plain-start.ts';
import { RawConnection } from '../support/raw-http.ts';
import { freePort } from '../support/free-ports.ts';
import type { Mode } from '../support/system.ts';
import { append, contentOf, finalize, makeUpload, offsetOf, openAppend } from '../support/uploads.ts';

const megabyte = 1024 * 1024;

/** The password that the first start prints, which must be there exactly once. */
function printedPassword(output: string): string {
  const found = [...output.matchAll(/password\W+(\S{12,})/gi)].map((match) => match[1] ?? '');
  expect(found).toHaveLength(1);
  return found[0] ?? '';
}

describe.each<Mode>(['standalone', 'services'])('a life of one data folder, %s', (mode) => {
  let dataDir: string;
  let port: number;
  let url: string;
  let password: string;
  let running: PlainStart;
  // More than the system's buffers take, and no whole number of chunks: the last one waits in the process.
  const content = randomBytes(Math.floor(5.8 * megabyte));
  let fileId: string;
  const others: PlainStart[] = [];

  const environment = (): Record<string, string> => ({
    STOWAGE_DATA_DIR: dataDir,
    STOWAGE_PORT: String(port),
    STOWAGE_LOG_LEVEL: 'warn',
  });
  const start = (more: Record<string, string> = {}): PlainStart => {
    const started = startPlainly(mode, { ...environment(), ...more });
    others.push(started);
    return started;
  };
  const admin = (): Promise<Client> => logIn(url, 'admin', password);
  const isWhole = async (): Promise<boolean> => sha256(await contentOf(await admin(), fileId)) === sha256(content);

  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'stowage-life-'));
    await chmod(dataDir, 0o755);
    port = await freePort();
    url = `http://127.0.0.1:${port}`;
    running = start();
    await running.ready;
  });

  afterAll(async () => {
    for (const started of others) await started.killGroup();
    const postmaster = await postmasterOf(dataDir);
    if (postmaster !== null) process.kill(postmaster, 'SIGKILL');
    await until(async () => (await postmasterOf(dataDir)) === null);
    await rm(dataDir, { recursive: true, force: true });
  });

  test('the first start prints the address and, once, the password of the admin, which works', async () => {
    expect(running.output()).toContain(url);
    password = printedPassword(running.output());
    const client = await admin();
    fileId = String((await client.putFile('kept.bin', content))['id']);
    expect(await isWhole()).toBe(true);
  });

  test('a second start of the same folder is refused with a clear message and disturbs nothing', async () => {
    const client = await admin();
    const upload = await makeUpload(client, { length: 4 * megabyte, metadata: { filename: 'meanwhile' } });
    const bytes = randomBytes(4 * megabyte);
    const connection = await openAppend(client, upload.path, { offset: 0, length: bytes.length });
    await connection.send(bytes.subarray(0, 2 * megabyte));
    const second = start({ STOWAGE_PORT: String(await freePort()) });
    expect(await second.exited).toBe(1);
    expect(second.output()).toMatch(/another Stowage is running/i);
    expect(second.output()).toContain(dataDir);
    expect(second.output()).not.toMatch(/\n\s+at /);
    await connection.send(bytes.subarray(2 * megabyte));
    expect((await connection.answer()).status).toBe(204);
    connection.cut();
    expect(expectStatus(await finalize(client, upload), 201).json['sha256']).toBe(sha256(bytes));
    expect(await isWhole()).toBe(true);
    expect(running.process.exitCode).toBeNull();
  });

  test('a port that is taken is refused with a clear message, and the folder stays usable', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'stowage-port-'));
    await chmod(folder, 0o755);
    const second = start({ STOWAGE_DATA_DIR: folder });
    expect(await second.exited).toBe(1);
    expect(second.output()).toMatch(new RegExp(`${port}.*(in use|taken)|(in use|taken).*${port}`, 's'));
    expect(second.output()).toContain('STOWAGE_PORT');
    expect(second.output()).not.toMatch(/\n\s+at /);
    expect(await postmasterOf(folder)).toBeNull();
    expect(await isWhole()).toBe(true);
    await rm(folder, { recursive: true, force: true });
  });

  test('SIGINT finishes a slow download and a slow upload that are under way, takes nothing new, and exits 0 within 10 s', async () => {
    const client = await admin();
    const bytes = randomBytes(2 * megabyte);
    const upload = await makeUpload(client, { length: bytes.length, metadata: { filename: 'under-way' } });
    const uploading = await openAppend(client, upload.path, { offset: 0, length: bytes.length });
    await uploading.send(bytes.subarray(0, megabyte));
    const call = request(`${url}/api/files/${fileId}/download`, {
      headers: { authorization: `Bearer ${client.token ?? ''}` },
    });
    call.end();
    const [downloading]: IncomingMessage[] = await once(call, 'response');
    const begun = Date.now();
    running.signal('SIGINT');
    await until(async () => !(await isTaken(url)));
    const pieces: Buffer[] = [];
    for await (const piece of downloading ?? []) {
      pieces.push(piece);
      await new Promise((resolve) => setTimeout(resolve, 15));
    }
    await uploading.send(bytes.subarray(megabyte, megabyte + 10));
    await new Promise((resolve) => setTimeout(resolve, 500));
    await uploading.send(bytes.subarray(megabyte + 10));
    const answer = await uploading.answer();
    uploading.cut();
    expect([answer.status, answer.headers['upload-offset']]).toEqual([204, String(bytes.length)]);
    expect(sha256(Buffer.concat(pieces))).toBe(sha256(content));
    expect(await running.exited).toBe(0);
    expect(Date.now() - begun).toBeLessThan(10_000);
    expect(await postmasterOf(dataDir)).toBeNull();
    running = start();
    await running.ready;
    expect(running.output()).not.toMatch(/password/i);
    const again = await admin();
    expect(await offsetOf(again, upload.path)).toBe(bytes.length);
    expect(expectStatus(await finalize(again, upload), 201).json['sha256']).toBe(sha256(bytes));
  });

  test('a client that never ends does not keep it from ending within 10 s; what arrived is kept', async () => {
    const client = await admin();
    const bytes = randomBytes(3 * megabyte);
    const upload = await makeUpload(client, { length: bytes.length, metadata: { filename: 'never-ending' } });
    const endless = await openAppend(client, upload.path, { offset: 0, length: bytes.length });
    await endless.send(bytes.subarray(0, 2 * megabyte));
    await until(async () => (await offsetOf(client, upload.path)) > 0);
    const begun = Date.now();
    running.signal('SIGTERM');
    expect(await running.exited).toBe(0);
    expect(Date.now() - begun).toBeLessThan(10_000);
    endless.cut();
    running = start();
    await running.ready;
    const again = await admin();
    const offset = await offsetOf(again, upload.path);
    expect(offset).toBeGreaterThanOrEqual(megabyte);
    expect(offset).toBeLessThanOrEqual(2 * megabyte);
    expectStatus(await append(again, upload.path, offset, bytes.subarray(offset)), 204);
    expect(expectStatus(await finalize(again, upload), 201).json['sha256']).toBe(sha256(bytes));
  });

  test('after kill -9 of the whole group the next start goes on by itself, and prints no password', async () => {
    await running.killGroup();
    running = start();
    await running.ready;
    expect(running.output()).not.toMatch(/password/i);
    expect(await isWhole()).toBe(true);
  });

  test('after kill -9 of the group and of PostgreSQL too', async () => {
    const client = await admin();
    const file = await client.putFile('just-before', 'acknowledged');
    const postmaster = await postmasterOf(dataDir);
    if (postmaster === null) throw new Error('PostgreSQL runs');
    process.kill(postmaster, 'SIGKILL');
    await running.killGroup();
    running = start();
    await running.ready;
    expect(running.output()).not.toMatch(/password/i);
    expect((await contentOf(await admin(), file['id'])).toString()).toBe('acknowledged');
    expect(await isWhole()).toBe(true);
  });

  test('a password in the settings does not replace the one of an admin who exists', async () => {
    running.signal('SIGTERM');
    expect(await running.exited).toBe(0);
    running = start({ STOWAGE_ADMIN_PASSWORD: 'another long password' });
    await running.ready;
    expect(
      (await new Client(url).post('/api/auth/login', { username: 'admin', password: 'another long password' })).status,
    ).toBe(401);
    expect(await isWhole()).toBe(true);
  });

  async function isTaken(address: string): Promise<boolean> {
    try {
      const connection = await RawConnection.open(address);
      connection.cut();
      return true;
    } catch {
      return false;
    }
  }
});

describe('a start that can not be', () => {
  const folders: string[] = [];

  afterEach(async () => {
    for (const folder of folders.splice(0)) await rm(folder, { recursive: true, force: true });
  });

  async function folder(): Promise<string> {
    const made = await mkdtemp(join(tmpdir(), 'stowage-refused-'));
    await chmod(made, 0o755);
    folders.push(made);
    return made;
  }

  test('tells all mistakes in the settings in one message, before it touches the folder', async () => {
    const dataDir = await folder();
    const started = startPlainly('standalone', {
      STOWAGE_DATA_DIR: dataDir,
      STOWAGE_PORT: '70000',
      STOWAGE_UPLOAD_EXPIRY: 'tomorrow',
      STOWAGE_MAX_UPLOAD_BYTES: '5 apples',
      STOWAGE_LOG_LEVEL: 'loud',
      STOWAGE_ADMIN_PASSWORD: 'short',
      STOWAGE_DATABASE_URL: 'mysql://localhost',
      STOWAGE_PUBLIC_URL: 'https://example.com/path',
    });
    expect(await started.exited).toBe(1);
    const output = started.output();
    for (const name of [
      'PORT',
      'UPLOAD_EXPIRY',
      'MAX_UPLOAD_BYTES',
      'LOG_LEVEL',
      'ADMIN_PASSWORD',
      'DATABASE_URL',
      'PUBLIC_URL',
    ]) {
      expect(output).toContain(`STOWAGE_${name} `);
    }
    expect(output).not.toContain('short');
    expect(output).not.toMatch(/\n\s+at /);
    expect(await readdir(dataDir)).toEqual([]);
  });

  test('says which folder it can not make', async () => {
    const file = join(await folder(), 'file');
    await writeFile(file, 'a file');
    const started = startPlainly('standalone', {
      STOWAGE_DATA_DIR: join(file, 'data'),
      STOWAGE_PORT: String(await freePort()),
    });
    expect(await started.exited).toBe(1);
    expect(started.output()).toContain(file);
    expect(started.output()).not.toMatch(/\n\s+at /);
  });

  test('does not leave PostgreSQL behind when the port is taken by another program', async () => {
    const dataDir = await folder();
    const blocker = createServer().listen(0, '127.0.0.1');
    await until(async () => blocker.listening);
    const address = blocker.address();
    if (typeof address !== 'object' || !address) throw new Error('no port');
    const started = startPlainly('standalone', { STOWAGE_DATA_DIR: dataDir, STOWAGE_PORT: String(address.port) });
    expect(await started.exited).toBe(1);
    expect(started.output()).toContain(String(address.port));
    expect(await postmasterOf(dataDir)).toBeNull();
    blocker.close();
  });
});

(process.getuid?.() === 0 ? describe : describe.skip)('a plain user', () => {
  test('can start it as well as root, and stop it', async () => {
    const nobody = { uid: 65534, gid: 65534 };
    const dataDir = await mkdtemp(join(tmpdir(), 'stowage-nobody-'));
    await chown(dataDir, nobody.uid, nobody.gid);
    const port = await freePort();
    const started = startPlainly(
      'standalone',
      { STOWAGE_DATA_DIR: dataDir, STOWAGE_PORT: String(port), STOWAGE_LOG_LEVEL: 'warn' },
      nobody,
    );
    try {
      await started.ready;
      const client = await logIn(`http://127.0.0.1:${port}`, 'admin', printedPassword(started.output()));
      expect((await contentOf(client, (await client.putFile('x', 'of nobody'))['id'])).toString()).toBe('of nobody');
      started.signal('SIGINT');
      expect(await started.exited).toBe(0);
      expect(await postmasterOf(dataDir)).toBeNull();
    } finally {
      await started.killGroup();
      await rm(dataDir, { recursive: true, force: true });
    }
  });
});
