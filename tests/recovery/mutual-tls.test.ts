import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { X509Certificate, randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { Authority, writeServiceCertificates } from '../support/certificates.ts';
import { expectStatus, logIn, sha256, until } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { exported } from '../support/metadata.ts';
import { startSystem } from '../support/system.ts';
import type { System } from '../support/system.ts';
import { contentOf } from '../support/uploads.ts';

let folder: string;
let system: System;
let root: Client;
const authority = new Authority();

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'stowage-certificates-'));
  await writeServiceCertificates(folder, authority);
  system = await startSystem('services', { STOWAGE_TLS_DIR: folder, STOWAGE_LOG_LEVEL: 'info' });
  root = await logIn(system.url);
});

afterAll(async () => {
  await system.close();
  await rm(folder, { recursive: true, force: true });
});

/** A file goes in and out, a policy is changed, and the metadata are read: all services and all byte ports are used. */
async function useAll(): Promise<void> {
  const content = randomBytes(3 * 1024 * 1024);
  const { id } = await root.putFile(`${sha256(content).slice(0, 12)}.bin`, content);
  expect(sha256(await contentOf(root, String(id)))).toBe(sha256(content));
  const { items } = expectStatus(await root.get('/api/backends'), 200).json;
  const policy = { replicas: 1, backends: [items[0].id] };
  expectStatus(await root.call('PUT', '/api/policies/placement/tls', { body: policy }), 200);
  expect(await exported(root)).toHaveProperty('files');
}

/** The ports of the six services, and what certificate each shows. */
async function shown(): Promise<string[]> {
  const ports = await innerPorts();
  return Promise.all(ports.map(certificateAt));
}

async function innerPorts(): Promise<number[]> {
  const found: number[] = [];
  for (const service of ['catalog', 'upload', 'backend-registry', 'placement', 'export']) {
    const environment = await readFile(`/proc/${await system.pidOf(service)}/environ`, 'utf8');
    const ports = [...environment.matchAll(/STOWAGE_(RPC|BYTES)_PORT=(\d+)/g)];
    const hasBytes = service !== 'catalog' && service !== 'placement';
    found.push(...ports.filter(([, kind]) => kind === 'RPC' || hasBytes).map((match) => Number(match[2])));
  }
  return found;
}

async function certificateAt(port: number): Promise<string> {
  const own = authority.issue(['gateway.stowage.internal']);
  const options = { port, host: '127.0.0.1', ca: authority.cert, ...own, checkServerIdentity: () => undefined };
  return new Promise((resolve, reject) => {
    const socket = connect({ ...options, ALPNProtocols: ['h2', 'http/1.1'] }, () => {
      resolve(socket.getPeerCertificate().fingerprint256);
      socket.destroy();
    });
    socket.once('error', reject);
  });
}

test('six services do all their work over TLS, and take up new certificates without a restart', async () => {
  await useAll();
  const before = await shown();
  expect(new Set(before).size).toBe(5);

  await writeServiceCertificates(folder, authority);
  await until(async () => (await shown()).every((fingerprint) => !before.includes(fingerprint)), 60_000);
  await useAll();

  const broken = join(folder, 'catalog.crt');
  const good = new X509Certificate(await readFile(broken)).fingerprint256;
  await writeFile(broken, 'half a certi');
  await until(async () => system.output().includes('can not be used; what was there stays'), 60_000);
  expect(await shown()).toContain(good);
  await useAll();
  expect(system.output()).not.toMatch(/was refused|were refused/);
});
