import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import sharp from 'sharp';
import { hostAndPort } from '@stowage/tests/support/host-and-port';
import { expectStatus, logIn, sha256, until } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { mode } from '@stowage/tests/support/contract';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';
import { inBatches } from '@stowage/tests/support/tree';
import { contentOf } from '@stowage/tests/support/uploads';

const mebibyte = 1024 * 1024;
const rounds = 80;
const services = ['gateway', 'backend-registry'];
/** What may come and go by itself: pooled connections, mostly. */
const slack = 12;

describe('clients that go away in the middle of a download', () => {
  let system: System;
  let client: Client;
  let file: Json;
  const bytes = randomBytes(16 * mebibyte + 3);

  beforeAll(async () => {
    system = await startSystem(mode());
    client = await logIn(system.url);
    file = await client.putFile('large', bytes);
    // What is opened once and kept is open by now.
    await inBatches(Array.from({ length: 8 }), () => contentOf(client, file['id']), 8);
  });

  afterAll(async () => system.close());

  async function openFiles(): Promise<number[]> {
    const pids = await Promise.all(services.map((service) => system.pidOf(service)));
    return Promise.all(pids.map(async (pid) => (await readdir(`/proc/${pid}/fd`)).length));
  }

  /** Sends the request and stops reading, so that the server comes to stand still. */
  async function begin(view: string, range?: string): Promise<Socket> {
    const socket = connect(hostAndPort(system.url));
    socket.on('error', () => undefined);
    await once(socket, 'connect');
    socket.pause();
    const lines = [
      `GET /api/files/${file['id']}/${view} HTTP/1.1`,
      'Host: x',
      `Authorization: Bearer ${client.token ?? ''}`,
    ];
    socket.write(`${[...lines, ...(range ? [`Range: ${range}`] : [])].join('\r\n')}\r\n\r\n`);
    return socket;
  }

  /** The first bytes of the answer, as a client that then loses interest. */
  async function firstBytes(socket: Socket): Promise<void> {
    await once(socket, 'readable');
    socket.read(100);
  }

  async function expectNothingHangs(before: number[]): Promise<void> {
    await until(async () => (await openFiles()).every((count, n) => count <= (before[n] ?? 0) + slack));
    expect(sha256(await contentOf(client, file['id']))).toBe(sha256(bytes));
    expect(await client.get(`/api/files/${file['id']}`)).toMatchObject({
      status: 200,
      json: { placement: { state: 'satisfied' } },
    });
    expect(expectStatus(await client.get('/api/jobs?kind=verify_blob'), 200).json['items']).toEqual([]);
  }

  test('after their first bytes leave nothing open', async () => {
    const before = await openFiles();
    await inBatches(
      Array.from({ length: rounds }, (_, n) => n),
      async (n) => {
        const socket = await begin(n % 2 === 0 ? 'download' : 'stream', n % 3 === 0 ? `bytes=${n}-` : undefined);
        await firstBytes(socket);
        if (n % 2 === 0) socket.resetAndDestroy();
        else socket.destroy();
      },
    );
    await expectNothingHangs(before);
  });

  test('before any byte leave nothing open', async () => {
    const before = await openFiles();
    await inBatches(Array.from({ length: rounds }), async () => (await begin('download')).destroy());
    await expectNothingHangs(before);
  });

  test('while the server stands still do not keep others waiting', async () => {
    const before = await openFiles();
    const sockets = await inBatches(Array.from({ length: 40 }), () => begin('download'));
    await inBatches(sockets, firstBytes);
    const start = performance.now();
    expect(sha256(await contentOf(client, file['id']))).toBe(sha256(bytes));
    expect(performance.now() - start).toBeLessThan(5_000);
    for (const socket of sockets) socket.destroy();
    await expectNothingHangs(before);
  });

  test('while a preview is made leave the previewer free', async () => {
    const noise = { type: 'gaussian', mean: 128, sigma: 60 } as const;
    const picture = sharp({ create: { width: 4_000, height: 3_000, channels: 3, background: '#808080', noise } });
    const large = await client.putFile(`${uniqueName()}.jpg`, await picture.jpeg().toBuffer());
    const before = await openFiles();
    await inBatches(
      Array.from({ length: 20 }, (_, n) => n),
      async (n) => {
        const socket = connect(hostAndPort(system.url));
        socket.on('error', () => undefined);
        await once(socket, 'connect');
        const head = `GET /api/files/${large['id']}/preview?size=${64 + n} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${client.token ?? ''}\r\n\r\n`;
        await new Promise((resolve) => socket.write(head, resolve));
        socket.destroy();
      },
    );
    expectStatus(await client.get(`/api/files/${large['id']}/preview`), 200);
    await expectNothingHangs(before);
  });
});
