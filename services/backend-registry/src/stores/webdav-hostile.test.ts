import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { inspect } from 'node:util';
import { newId } from '@stowage/common/ids';
import { blobKey } from './keys.ts';
import { seededContent, writeContent } from './test-content.ts';
import { DavServer } from './test-dav-server.ts';
import type { Misbehaviour } from './test-dav-server.ts';
import { never, readAll, refuses } from './test-store.ts';
import { testAgents } from './test-webdav.ts';
import { usualWebdavLimits } from './webdav-limits.ts';
import { WebdavStore } from './webdav-store.ts';

const limits = {
  ...usualWebdavLimits,
  connectMs: 500,
  callMs: 150,
  completeMs: 150,
  idleMs: 150,
  listMs: 500,
  cleanUpMs: 150,
};
const content = seededContent(100_000, 1);
const big = seededContent(16 * 1024 * 1024, 2);
const key = keyIn('bb');
const there = keyIn('aa');

/** Every call of the store, and the methods that it lives by. */
const calls: Record<string, { methods: string[]; run: (store: WebdavStore) => Promise<unknown> }> = {
  identity: { methods: ['GET'], run: (store) => store.identity() },
  prepare: { methods: ['PROPFIND'], run: (store) => store.prepare() },
  claim: { methods: ['PROPFIND', 'GET', 'PUT', 'MOVE'], run: (store) => store.claim(newId()) },
  write: { methods: ['PROPFIND', 'PUT', 'MOVE'], run: (store) => writeContent(store, key, content) },
  'write of much': { methods: ['PUT'], run: (store) => writeContent(store, key, big) },
  read: { methods: ['GET'], run: (store) => readAll(store, there, 0, 100_000) },
  stat: { methods: ['PROPFIND'], run: (store) => store.stat(there) },
  delete: { methods: ['DELETE'], run: (store) => store.delete(there) },
  list: { methods: ['PROPFIND'], run: (store) => store.list(null, 10) },
  sweep: { methods: ['PROPFIND'], run: (store) => store.sweep(new Date()) },
};

const each = Object.entries(calls).flatMap(([name, { methods, run }]) =>
  methods.map((method) => ({ name, method, run })),
);

describe('a hostile WebDAV server', () => {
  let server: DavServer;
  /** Gives up early. */
  let store: WebdavStore;
  let patient: WebdavStore;

  beforeEach(async () => {
    server = await DavServer.start();
    server.things.set('/dav/root', null);
    const before = await WebdavStore.open(server.config, testAgents());
    await before.prepare();
    await writeContent(before, there, content);
    // They remember nothing of that.
    store = await WebdavStore.open(server.config, testAgents(), limits);
    patient = await WebdavStore.open(server.config, testAgents());
  });

  afterEach(() => server.stop());

  const misbehave = (method: string, how: (request: IncomingMessage, response: ServerResponse) => void): void => {
    const misbehaviour: Misbehaviour = (request, response) => {
      if (request.method !== method) return false;
      how(request, response);
      return true;
    };
    server.misbehaviour = misbehaviour;
  };

  const expectNothingNew = (): void => expect(server.visible).toEqual([`/dav/root/${there}`]);

  for (const { name, method, run } of each) {
    for (const status of [500, 503, 401, 403, 302, 204, 999]) {
      if (status === 204 && ['PUT', 'MOVE', 'DELETE'].includes(method)) continue;
      test(`${name} says so when ${method} is answered with ${status}`, async () => {
        misbehave(method, (request, response) => {
          request.resume();
          response.writeHead(status, { location: 'http://127.0.0.1:1/', 'content-length': '0' }).end();
        });
        const error = await refuses(run(store), 'unavailable');
        if (status === 401) expect(error.detail).toContain('password');
        expect(inspect(error, { depth: 20 })).not.toMatch(/a-secret-word|Basic|YS1zZWNyZXQ/);
        expectNothingNew();
        server.misbehaviour = () => false;
      });
    }

    test(`${name} ends when ${method} is never answered`, async () => {
      misbehave(method, (request) => void request.resume());
      await refuses(run(store), 'unavailable');
      expectNothingNew();
    });

    test(`${name} ends when the connection is closed in ${method}`, async () => {
      misbehave(method, (request) => request.destroy());
      await refuses(run(store), 'unavailable');
      expectNothingNew();
    });

    test(`${name} ends when what answers ${method} is no HTTP`, async () => {
      misbehave(method, (request) => request.socket.end('SSH-2.0-OpenSSH_9.2\r\n'));
      const error = await refuses(run(store), 'unavailable');
      expect(inspect(error, { depth: 20 })).not.toContain('OpenSSH');
      expectNothingNew();
    });

    test(`${name} ends when the answer to ${method} has endless headers`, async () => {
      misbehave(method, (request) => {
        request.resume();
        request.socket.write('HTTP/1.1 200 OK\r\n');
        const more = (): void => {
          if (request.socket.writable) request.socket.write(`x: ${'y'.repeat(1000)}\r\n`, more);
        };
        more();
      });
      await refuses(run(store), 'unavailable');
      expectNothingNew();
    });

    test(`${name} ends when the answer to ${method} stops in the middle, or breaks off`, async () => {
      for (const end of ['stop', 'break']) {
        misbehave(method, (request, response) => {
          request.resume();
          const status = { PROPFIND: 207, GET: name === 'read' ? 206 : 200 }[method] ?? 500;
          const range = 'bytes 0-99999/100000';
          response.writeHead(status, { 'content-length': name === 'read' ? 100_000 : 500, 'content-range': range });
          response.write('<?xml version="1.0"?><multistatus xmlns="DAV:">', () => {
            if (end === 'break') request.destroy();
          });
        });
        await refuses(run(store), 'unavailable');
        expectNothingNew();
      }
    });
  }

  test('a full one is told as full, wherever that shows', async () => {
    for (const [folder, method] of Object.entries({ c0: 'PUT', c1: 'MOVE', c2: 'MKCOL' })) {
      for (const status of [507, 413]) {
        misbehave(method, (request, response) => {
          request.resume();
          response.writeHead(status).end();
        });
        await refuses(writeContent(patient, keyIn(folder), content), 'insufficient_storage');
      }
    }
    misbehave('PUT', (_request, response) => void response.writeHead(507).end());
    await refuses(writeContent(patient, key, big), 'insufficient_storage');
    server.misbehaviour = () => false;
    expectNothingNew();
    expect(server.temporary).toEqual([]);
  });

  test('one that takes no more of a body is left, and all of it is given back', async () => {
    misbehave('PUT', () => undefined);
    await refuses(writeContent(store, key, big), 'unavailable');
    expectNothingNew();
  });

  test('one that answers before it has the body has not got it', async () => {
    misbehave('PUT', (_request, response) => void response.writeHead(201).end());
    await refuses(writeContent(patient, key, big), 'unavailable');
    expectNothingNew();
  });

  test('one that loses the body, or half of it, is found out before anything is visible', async () => {
    for (const kept of [0, 50_000]) {
      misbehave('PUT', (request, response) => {
        request.resume().once('end', () => {
          server.things.set(decodeURIComponent(request.url ?? ''), content.slice(0, kept));
          response.writeHead(201).end();
        });
      });
      await refuses(writeContent(patient, key, content), 'unavailable');
      expectNothingNew();
      expect(server.temporary).toEqual([]);
    }
    misbehave('PUT', (request, response) => {
      request.resume().once('end', () => void response.writeHead(201).end());
    });
    await refuses(writeContent(patient, key, content), 'unavailable');
    expectNothingNew();
  });

  test('one whose folders went away gets no content before they are claimed again', async () => {
    await writeContent(patient, key, content);
    const root = '/dav/root';
    for (const path of server.things.keys()) if (path.startsWith(root)) server.things.delete(path);
    for (let round = 0; round < 3; round += 1) await refuses(writeContent(patient, key, content), 'unavailable');
    expect([...server.things.keys()]).toEqual(['/dav']);
    await patient.claim(newId());
    await patient.prepare();
    await writeContent(patient, key, content);
    expect(server.visible).toEqual([`${root}/${key}`]);
  });

  test('a folder of blobs that went away is made again', async () => {
    await writeContent(patient, key, content);
    const folder = `/dav/root/${key.slice(0, 8)}`;
    for (const path of server.things.keys()) if (path.startsWith(folder)) server.things.delete(path);
    await refuses(writeContent(patient, key, content), 'unavailable');
    expect(server.temporary).toEqual([]);
    await writeContent(patient, key, content);
    expect(server.visible).toContain(`/dav/root/${key}`);
  });

  test('what is locked for a moment is waited for', async () => {
    const locked = new Set(['MKCOL', 'MOVE', 'DELETE']);
    server.misbehaviour = (request, response) => {
      if (!locked.delete(request.method ?? '')) return false;
      response.writeHead(423).end();
      return true;
    };
    await writeContent(patient, key, content);
    await patient.delete(key);
    expect(locked.size).toBe(0);
    expectNothingNew();
  });

  test('something else in the place of a folder is left alone', async () => {
    server.things.set(`/dav/root/${key.slice(0, 8)}`, Buffer.from('x'));
    await refuses(writeContent(patient, key, content), 'unavailable');
    expect(server.things.get(`/dav/root/${key.slice(0, 8)}`)).toEqual(Buffer.from('x'));
  });

  test('a folder in the place of a blob is no blob', async () => {
    server.things.set(`/dav/root/${key.slice(0, 8)}`, null).set(`/dav/root/${key}`, null);
    expect(await patient.stat(key)).toBeNull();
    await refuses(patient.read(key, { start: 0, end: 0 }, never), 'not_found');
    await refuses(patient.read(key, { start: 0, end: 1 }, never), 'unavailable');
    expect((await patient.list(null, 10)).blobs.map((blob) => blob.key)).toEqual([there]);
  });

  test('nothing goes where a redirect leads', async () => {
    const other = await DavServer.start();
    const location = `http://127.0.0.1:${other.port}/dav/`;
    server.misbehaviour = (request, response) => {
      request.resume();
      response.writeHead(307, { location }).end();
      return true;
    };
    for (const { run } of Object.values(calls)) await refuses(run(store), 'unavailable');
    expect(other.requests).toEqual([]);
    other.stop();
  });

  test('one that is not there is told as such', async () => {
    server.stop();
    for (const { run } of Object.values(calls)) await refuses(run(store), 'unavailable');
  });

  test('what is cancelled gives its connection back, whatever it waits for', async () => {
    const waits: [string, (signal: AbortSignal) => Promise<unknown>][] = [
      ['GET', (signal) => patient.read(there, { start: 0, end: 9 }, signal)],
      ['PUT', (signal) => patient.write(key, big, big.body(), signal)],
      ['MOVE', (signal) => patient.write(key, content, content.body(), signal)],
    ];
    for (const [method, run] of waits) {
      const asked = Promise.withResolvers<IncomingMessage>();
      misbehave(method, (request) => asked.resolve(request));
      const cancel = new AbortController();
      const running = refuses(run(cancel.signal), 'unavailable');
      const request = await asked.promise;
      cancel.abort();
      await running;
      request.resume();
      await closed(request);
      expectNothingNew();
    }
  });

  test('a reader that is cancelled in the middle gives its connection back', async () => {
    const asked = Promise.withResolvers<IncomingMessage>();
    misbehave('GET', (request, response) => {
      response.writeHead(206, { 'content-range': 'bytes 0-99999/100000' }).write('x');
      asked.resolve(request);
    });
    const stream = await patient.read(there, { start: 0, end: 100_000 }, never);
    stream.destroy();
    await closed(await asked.promise);
  });
});

/** The key of a new blob in this folder. */
function keyIn(folder: string): string {
  return blobKey(`${newId().slice(0, -2)}${folder}`);
}

async function closed({ socket }: IncomingMessage): Promise<void> {
  if (!socket.destroyed) await new Promise((resolve) => socket.once('close', resolve));
}
