import { describe, expect, test } from '@jest/globals';
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { PassThrough } from 'node:stream';
import { shielded } from './shielded.ts';

const patience = 60_000;

async function textOf(stream: AsyncIterable<Buffer>): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of stream) pieces.push(piece);
  return Buffer.concat(pieces).toString();
}

describe('shielded', () => {
  test('gives the whole body', async () => {
    const body = new PassThrough();
    const view = shielded(body, patience);
    body.write('one ');
    body.end('two');
    expect(await textOf(view)).toBe('one two');
  });

  test('takes nothing before it is read, and tells of what it takes', async () => {
    const body = new PassThrough();
    let taken = 0;
    const unread = shielded(body, patience, () => (taken += 1));
    body.end('whole');
    await new Promise((resolve) => setImmediate(resolve));
    expect(taken).toBe(0);
    unread.destroy();
    expect(await textOf(shielded(body, patience, () => (taken += 1)))).toBe('whole');
    expect(taken).toBe(1);
  });

  test('takes no more than its buffer while nobody reads', async () => {
    const body = new PassThrough();
    const view = shielded(body, patience);
    view.read(0);
    for (let sent = 0; sent < 8 * 1024 * 1024; sent += 64 * 1024) {
      body.write(Buffer.alloc(64 * 1024));
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(view.readableLength).toBeLessThan(2 * 1024 * 1024);
    view.destroy();
  });

  test('breaks when nobody takes what is there for too long, and leaves the body alone', async () => {
    const body = new PassThrough({ highWaterMark: 4 * 1024 * 1024 });
    const view = shielded(body, 20);
    body.write(Buffer.alloc(2 * 1024 * 1024));
    const [error] = await once(view, 'error');
    expect(error).toMatchObject({ code: 'unavailable' });
    expect(body.destroyed).toBe(false);
  });

  test('breaks in peace before anybody listens to it', async () => {
    const body = new PassThrough();
    const view = shielded(body, 10);
    await new Promise((resolve) => view.once('close', resolve));
    expect(view.errored).toMatchObject({ code: 'unavailable' });
  });

  test('goes on for as long as something is taken', async () => {
    const body = new PassThrough();
    const view = shielded(body, 200);
    const piece = Buffer.alloc(512 * 1024);
    for (let round = 0; round < 12; round += 1) body.write(piece);
    body.end();
    let taken = 0;
    for await (const bytes of view) {
      taken += (bytes as Buffer).length;
      await new Promise((resolve) => setTimeout(resolve, 40));
    }
    expect(taken).toBe(12 * piece.length);
  });

  test('breaks where the body breaks off', async () => {
    const body = new PassThrough();
    const view = shielded(body, patience);
    body.write('half');
    body.destroy();
    await expect(textOf(view)).rejects.toThrow();
    await expect(textOf(shielded(body, patience))).rejects.toThrow();
  });

  test.each([true, false])(
    'destroyed (with an error: %s), it leaves a request alone: the rest can be read, and the connection goes on',
    async (withError) => {
      const rests: number[] = [];
      const server = createServer({ highWaterMark: 256 * 1024 }, (incoming, response) => {
        void (async () => {
          const view = shielded(incoming, patience);
          view.on('error', () => undefined);
          await once(view, 'readable');
          const read = (view.read(10) as Buffer).length;
          view.destroy(withError ? new Error('refused') : undefined);
          let rest = 0;
          for await (const piece of incoming) rest += (piece as Buffer).length;
          rests.push(read + rest);
          response.end('refused');
        })();
      });
      await once(server.listen(0, '127.0.0.1'), 'listening');
      const { port } = server.address() as AddressInfo;
      for (let round = 0; round < 3; round += 1) {
        const call = request({ port, host: '127.0.0.1', method: 'POST' });
        call.end(Buffer.alloc(2 * 1024 * 1024));
        const [answer] = (await once(call, 'response')) as [IncomingMessage];
        expect(await textOf(answer)).toBe('refused');
      }
      expect(rests).toHaveLength(3);
      server.closeAllConnections();
      server.close();
    },
  );
});
