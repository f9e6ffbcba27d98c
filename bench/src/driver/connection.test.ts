import { once } from 'node:events';
import { createServer } from 'node:net';
import type { Server } from 'node:net';
import { afterEach, expect, test } from '@jest/globals';
import { Connection, expectStatus, headerOf, headOf } from './connection.ts';

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

/** A server that answers each request with these pieces, one write each, and then hangs up if it is told to. */
async function answering(pieces: readonly string[], hangsUp = false): Promise<Connection> {
  const server = createServer((socket) => {
    socket.setNoDelay(true).on('error', () => undefined);
    socket.on('data', () => {
      void (async () => {
        for (const piece of pieces) await new Promise((resolve) => socket.write(piece, resolve));
        if (hangsUp) socket.destroy();
      })();
    });
  }).listen(0, '127.0.0.1');
  servers.push(server);
  await once(server, 'listening');
  const address = server.address();
  if (typeof address !== 'object' || !address) throw new Error('no port');
  return Connection.open(address.port, 8);
}

const request = headOf('GET', '/', null, {});

test('an answer is put together however it is cut', async () => {
  const connection = await answering([
    'HTTP/1.1 200 OK\r',
    '\nContent-',
    'Length: 11\r\nX-Some: thing\r\n\r',
    '\nhello',
    ', all!',
  ]);
  for (let turn = 0; turn < 2; turn++) {
    const answer = await connection.send(request, true);
    expect(answer).toMatchObject({ status: 200, bodyBytes: 11, body: 'hello, all!' });
    expect(headerOf(answer, 'x-some')).toBe('thing');
  }
  connection.close();
});

test('a body is counted and not kept, unless it tells of a failure', async () => {
  const good = await answering(['HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok']);
  expect(await good.send(request)).toMatchObject({ bodyBytes: 2, body: '' });
  good.close();
  const bad = await answering(['HTTP/1.1 500 Oh\r\nContent-Length: 3\r\n\r\nwhy']);
  const answer = await bad.send(request);
  expect(() => expectStatus(answer, 200, 'GET /')).toThrow(/GET \/: expected 200[^]*why/);
  bad.close();
});

test('an answer that ends early is no answer', async () => {
  const connection = await answering(['HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab'], true);
  await expect(connection.send(request)).rejects.toThrow('closed');
});

test('an answer that is refused before the body was sent ends the sending', async () => {
  const connection = await answering(['HTTP/1.1 413 Too much\r\nContent-Length: 0\r\n\r\n'], true);
  const head = headOf('PUT', '/', 1 << 28, {});
  const outcome = await connection.sendLong(head, 1 << 28).then(
    ({ status }) => status,
    () => 'cut',
  );
  expect([413, 'cut']).toContain(outcome);
});
