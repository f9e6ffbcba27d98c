import { toBinary, create } from '@bufbuild/protobuf';
import { afterEach, expect, test } from '@jest/globals';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { RequestListener, Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { PassThrough, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { AppendStagedResponseSchema } from '@stowage/proto/stowage/backend_registry/v1/blob';
import { backgroundContext } from '../rpc/context.ts';
import { ByteClient } from './byte-client.ts';
import type { ByteClientOptions } from './byte-client.ts';
import { appendStaged, readBlob } from './operations.ts';

const stops: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).reverse()) await stop();
});

async function listen(handle: RequestListener, host = '127.0.0.1', port = 0): Promise<number> {
  const server = createServer(handle);
  await once(server.listen(port, host), 'listening');
  stops.push(() => closed(server));
  return (server.address() as AddressInfo).port;
}

async function closed(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}

/** A port that refuses connections. */
async function refusingPort(): Promise<number> {
  const server = createServer();
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  await closed(server);
  return port;
}

function says(word: string): RequestListener {
  return (_request, response) => void response.end(word);
}

/** Answers an append with the number of bytes that came. */
const counts: RequestListener = (request, response) => {
  void text(request).then((body) => {
    const answer = create(AppendStagedResponseSchema, { offset: BigInt(body.length) });
    response.end(toBinary(AppendStagedResponseSchema, answer));
  });
};

function clientOf(origins: string, options?: ByteClientOptions): ByteClient {
  const client = new ByteClient(origins, options);
  stops.push(() => client.close());
  return client;
}

const context = backgroundContext(new AbortController().signal);

async function download(client: ByteClient): Promise<string> {
  return text(await client.downloader(readBlob)({}, context));
}

async function upload(client: ByteClient, body: Readable): Promise<number> {
  const { offset } = await client.uploader(appendStaged)({}, body, context);
  return Number(offset);
}

test('all addresses take their turn', async () => {
  const ports = [await listen(says('a')), await listen(says('b'))];
  const client = clientOf(ports.map((port) => `http://127.0.0.1:${port}`).join(','));
  const answers: string[] = [];
  for (let round = 0; round < 6; round += 1) answers.push(await download(client));
  expect(answers.toSorted().join('')).toBe('aaabbb');
});

test('an address that takes no connection costs no request, whether it reads or sends', async () => {
  const ports = [await refusingPort(), await listen(counts), await refusingPort()];
  const client = clientOf(ports.map((port) => `http://127.0.0.1:${port}`).join(', '));
  const sent = await Promise.all(
    Array.from({ length: 20 }, (_, index) => upload(client, Readable.from([Buffer.alloc(index)]))),
  );
  expect(sent).toEqual(Array.from({ length: 20 }, (_, index) => index));
  await Promise.all(Array.from({ length: 20 }, () => download(client)));
});

test('where no address takes a connection a request is told so, and its body left as it was', async () => {
  const client = clientOf(`http://127.0.0.1:${await refusingPort()},http://127.0.0.1:${await refusingPort()}`);
  const body = Readable.from([Buffer.from('whole')]);
  await expect(upload(client, body)).rejects.toMatchObject({ code: 'unavailable' });
  expect(await text(body)).toBe('whole');
});

test('what is under way at an address that is gone from its name ends well', async () => {
  const arrived = Promise.withResolvers<void>();
  const held = Promise.withResolvers<void>();
  const holds: RequestListener = (_request, response) => {
    arrived.resolve();
    void held.promise.then(() => response.end('old'));
  };
  const port = await listen(holds, '127.0.0.2');
  await listen(says('new'), '127.0.0.3', port);
  // Nobody listens at the first: its turn is when the name is looked up anew.
  let addresses = ['127.0.0.4', '127.0.0.2'];
  const client = clientOf(`http://replicas.test:${port}`, { lookup: async () => addresses });
  const underWay = download(client);
  await arrived.promise;
  addresses = ['127.0.0.3'];
  expect(await download(client)).toBe('new');
  held.resolve();
  expect(await underWay).toBe('old');
});

test('the addresses of a name are looked up again when one takes no connection', async () => {
  const port = await listen(says('new'), '127.0.0.3');
  let asked = 0;
  const lookup = async (): Promise<string[]> => ((asked += 1) === 1 ? ['127.0.0.2'] : ['127.0.0.3']);
  expect(await download(clientOf(`http://replicas.test:${port}`, { lookup }))).toBe('new');
});

test('a name that can not be resolved for once keeps its addresses; one that never could is unavailable', async () => {
  const port = await listen(says('here'));
  let known = true;
  const lookup = async (): Promise<string[]> => {
    if (!known) throw new Error('EAI_AGAIN');
    return ['127.0.0.1', '127.0.0.2'];
  };
  const client = clientOf(`http://replicas.test:${port}`, { lookup });
  expect(await download(client)).toBe('here');
  known = false;
  for (let round = 0; round < 4; round += 1) expect(await download(client)).toBe('here');
  await expect(download(clientOf(`http://replicas.test:${port}`, { lookup }))).rejects.toMatchObject({
    code: 'unavailable',
  });
});

test('a download whose connection breaks before its answer is asked for again', async () => {
  const breaks = await listen((request) => void request.socket.destroy());
  const works = await listen(says('here'));
  const client = clientOf(`http://127.0.0.1:${breaks},http://127.0.0.1:${works}`);
  for (let round = 0; round < 4; round += 1) expect(await download(client)).toBe('here');
});

test('a connection that the server closes while it is kept alive harms no download', async () => {
  let calls = 0;
  const port = await listen((request, response) => {
    calls += 1;
    // Without a word, as a server does whose patience with idle connections is over.
    if (calls % 2 === 0) request.socket.destroy();
    else response.end('here');
  });
  const client = clientOf(`http://127.0.0.1:${port}`);
  for (let round = 0; round < 4; round += 1) expect(await download(client)).toBe('here');
});

test('an answer that breaks off, or is not of a byte port, is an outage', async () => {
  const cut: RequestListener = (request, response) => {
    request.resume().once('end', () => {
      response.writeHead(200, { 'content-length': '100' }).write('half', () => request.socket.destroy());
    });
  };
  const foreign: RequestListener = (_request, response) => void response.writeHead(502).end('<html>');
  for (const handle of [cut, foreign]) {
    const client = clientOf(`http://127.0.0.1:${await listen(handle)}`);
    await expect(upload(client, Readable.from([]))).rejects.toMatchObject({ code: 'unavailable' });
  }
});

test('however many requests are under way, the next one is sent', async () => {
  const many = 140;
  const all = Promise.withResolvers<void>();
  let arrived = 0;
  const port = await listen((_request, response) => {
    arrived += 1;
    if (arrived === many) all.resolve();
    void all.promise.then(() => response.end('here'));
  });
  const client = clientOf(`http://127.0.0.1:${port}`);
  const answers = await Promise.all(Array.from({ length: many }, () => download(client)));
  expect(new Set(answers)).toEqual(new Set(['here']));
});

test('a resolver that answers no more holds nobody up while there is an address that works', async () => {
  const port = await listen(says('here'));
  let asked = 0;
  const lookup = (): Promise<string[]> => {
    asked += 1;
    return asked === 1 ? Promise.resolve(['127.0.0.1', '127.0.0.2']) : new Promise(() => undefined);
  };
  const client = clientOf(`http://replicas.test:${port}`, { lookup });
  for (let round = 0; round < 4; round += 1) expect(await download(client)).toBe('here');
});

test('a body of which something was sent is not sent twice', async () => {
  let calls = 0;
  const breaks: RequestListener = (request) => {
    calls += 1;
    request.once('data', () => request.socket.destroy());
  };
  const client = clientOf(`http://127.0.0.1:${await listen(breaks)},http://127.0.0.1:${await listen(breaks)}`);
  const body = new PassThrough();
  body.write('half');
  await expect(upload(client, body)).rejects.toMatchObject({ code: 'unavailable' });
  expect(calls).toBe(1);
});
