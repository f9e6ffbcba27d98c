import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { newId } from '@stowage/common/ids';
import { blobKey } from './keys.ts';
import { seededContent } from './test-content.ts';
import { DavServer } from './test-dav-server.ts';
import { never, readAll, refuses } from './test-store.ts';
import { testAgents } from './test-webdav.ts';
import { usualWebdavLimits } from './webdav-limits.ts';
import { WebdavStore } from './webdav-store.ts';

const limits = { ...usualWebdavLimits, callMs: 500, completeMs: 500, idleMs: 500, cleanUpMs: 500 };
const mebibyte = 1024 * 1024;
const content = seededContent(3 * mebibyte, 1);
const whole = content.slice(0, content.size);
const key = blobKey(newId());
const [start, end] = [mebibyte + 7, 2 * mebibyte + 9];

describe('content that comes from a WebDAV server', () => {
  let server: DavServer;
  let store: WebdavStore;
  let impatient: WebdavStore;

  beforeEach(async () => {
    server = await DavServer.start();
    store = await WebdavStore.open(server.config, testAgents());
    impatient = await WebdavStore.open(server.config, testAgents(), limits);
    server.things.set('/dav/root', null);
    await store.prepare();
  });

  afterEach(() => server.stop());

  const answerGet = (answer: (response: ServerResponse, request: IncomingMessage) => void): void => {
    server.misbehaviour = (request, response) => {
      if (request.method !== 'GET') return false;
      answer(response, request);
      return true;
    };
  };

  const answerWith = (status: number, headers: OutgoingHttpHeaders, body: Buffer): void =>
    answerGet((response) => void response.writeHead(status, headers).end(body));

  test('is not taken for the range when the server says that it is another', async () => {
    const part = whole.subarray(start, end);
    const wrong: OutgoingHttpHeaders[] = [
      {},
      { 'content-range': `bytes 0-${end - start - 1}/${content.size}` },
      { 'content-range': `bytes ${start}-${end}/${content.size}` },
      { 'content-range': `bytes ${start}-${end - 2}/${content.size}` },
      { 'content-range': `bytes ${start - 1}-${end - 1}/${content.size}` },
      { 'content-range': `bytes */${content.size}` },
      { 'content-range': `items ${start}-${end - 1}/${content.size}` },
      { 'content-range': `bytes ${start}-${end - 1}/${content.size}`, 'content-encoding': 'gzip' },
      { 'content-range': `bytes ${start}-${end - 1}/${content.size}`, 'content-length': 5 },
      { 'content-type': 'multipart/byteranges; boundary=x' },
    ];
    for (const headers of wrong) {
      answerWith(206, headers, 'content-length' in headers ? part.subarray(0, 5) : part);
      await refuses(store.read(key, { start, end }, never), 'unavailable');
    }
    answerWith(206, { 'content-range': `bytes ${start}-${end - 1}/*` }, part);
    expect((await readAll(store, key, start, end)).equals(part)).toBe(true);
  });

  test('is told as missing when it is too short, however the server says so', async () => {
    for (const [status, headers] of [
      [206, { 'content-range': `bytes ${start}-${end - 2}/${end - 1}` }],
      [416, { 'content-range': `bytes */${start}` }],
      [416, {}],
      [404, {}],
      [410, {}],
      [200, { 'content-length': 0 }],
    ] as const) {
      answerWith(status, headers, Buffer.alloc(0));
      await refuses(store.read(key, { start, end }, never), 'not_found');
    }
  });

  test('may come as a whole: what lies before and after the range is dropped', async () => {
    for (const chunked of [true, false]) {
      answerWith(200, chunked ? {} : { 'content-length': whole.length }, whole);
      for (const [from, to] of [
        [start, end],
        [0, 1],
        [0, whole.length],
        [whole.length - 1, whole.length],
      ] as const) {
        expect((await readAll(store, key, from, to)).equals(whole.subarray(from, to))).toBe(true);
      }
    }
  });

  test('that ends too early breaks the stream, and never ends it', async () => {
    const places = [0, 1, 100_000, end - start - 1];
    const range = { 'content-range': `bytes ${start}-${end - 1}/${content.size}` };
    for (const sent of places) {
      for (const how of ['end', 'break', 'stop'] as const) {
        answerGet((response) => {
          response.writeHead(206, range);
          if (how === 'end') response.end(whole.subarray(start, start + sent));
          else if (sent === 0 && how === 'break') response.destroy();
          else {
            response.flushHeaders();
            response.write(whole.subarray(start, start + Math.max(sent, 1)), () => {
              if (how === 'break') response.destroy();
            });
          }
        });
        await refuses(readAll(how === 'stop' ? impatient : store, key, start, end), 'unavailable');
      }
    }
    answerWith(200, {}, whole.subarray(0, end - 1));
    await refuses(readAll(store, key, start, end), 'unavailable');
    answerWith(200, {}, whole.subarray(0, start - 1));
    await refuses(readAll(store, key, start, end), 'unavailable');
  });

  test('and goes on after the range without an end is cut there', async () => {
    let gone: Promise<unknown> = Promise.resolve();
    answerGet((response) => {
      gone = new Promise((resolve) => response.once('close', resolve));
      response.writeHead(206, { 'content-range': `bytes ${start}-${end - 1}/${content.size}` });
      response.write(whole.subarray(start, end));
      const more = (): void => {
        if (response.writable) response.write(Buffer.alloc(65_536), () => setImmediate(more));
      };
      more();
    });
    expect((await readAll(store, key, start, end)).equals(whole.subarray(start, end))).toBe(true);
    await gone;
  });

  test('waits for a reader that is in no hurry', async () => {
    server.things.set(`/dav/root/blobs/${key.slice(6, 8)}`, null).set(`/dav/root/${key}`, whole);
    const stream = await impatient.read(key, { start: 0, end: whole.length }, never);
    server.misbehaviour = () => true;
    const pieces: Buffer[] = [];
    for await (const piece of stream) {
      // Another read, of a server that is silent, tells that its time would have been over, twice.
      for (let late = 0; pieces.length === 0 && late < 2; late += 1) {
        await refuses(impatient.read(key, { start, end }, never), 'unavailable');
      }
      pieces.push(piece);
    }
    expect(Buffer.concat(pieces).equals(whole)).toBe(true);
  });

  test('and content that goes there, is in memory only in part', async () => {
    const size = 64 * mebibyte + 1;
    const many = seededContent(size, 4);
    let [received, produced, most] = [0, 0, 0];
    server.misbehaviour = (request, response) => {
      if (request.method === 'PUT') {
        request.on('data', (piece: Buffer) => {
          received += piece.length;
          request.pause();
          setImmediate(() => request.resume());
        });
        request.once('end', () => {
          server.things.set(decodeURIComponent(request.url ?? ''), Buffer.alloc(size));
          response.writeHead(201).end();
        });
        return true;
      }
      if (request.method !== 'GET') return false;
      response.writeHead(206, { 'content-length': size, 'content-range': `bytes 0-${size - 1}/${size}` });
      counted(many.body()).pipe(response);
      return true;
    };
    const counted = (body: Readable): Readable =>
      Readable.from(
        (async function* () {
          for await (const piece of body) {
            produced += piece.length;
            most = Math.max(most, produced - received);
            yield piece;
          }
        })(),
        { objectMode: false },
      );
    await store.write(key, many, counted(many.body()), never);
    expect(received).toBe(size);
    expect(most).toBeLessThan(24 * mebibyte);
    [received, produced, most] = [0, 0, 0];
    for await (const piece of await store.read(key, { start: 0, end: size }, never)) {
      received += piece.length;
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(received).toBe(size);
    expect(most).toBeLessThan(24 * mebibyte);
  });
});
