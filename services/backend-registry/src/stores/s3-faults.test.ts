import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { once } from 'node:events';
import { createServer, Agent as HttpAgent } from 'node:http';
import type { Server, ServerResponse } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import type { Duplex } from 'node:stream';
import { inspect } from 'node:util';
import { AppError } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import type { AppendableStore } from './blob-store.ts';
import { blobKey } from './keys.ts';
import { usualLimits } from './idle-limit.ts';
import type { S3Config, StoreAgents } from './s3-config.ts';
import { S3Store } from './s3-store.ts';
import { seededContent, writeContent } from './test-content.ts';
import { listing, multipart, respond } from './test-s3-answers.ts';
import type { Handler } from './test-s3-answers.ts';
import { append, never, readAll, refuses } from './test-store.ts';

const mebibyte = 1024 * 1024;
const key = blobKey(newId());
const little = seededContent(100, 1);
const more = seededContent(9 * mebibyte, 1);
const inParts = seededContent(65 * mebibyte, 1);
const secrets = {
  accessKeyId: 'AKIA-not-for-logs',
  secretAccessKey: 'secret-not-for-logs',
  sessionToken: 'token-not-for-logs',
};
const impatient = { connectMs: 150, callMs: 150, completeMs: 150, idleMs: 150 };

/** What every method must stand, each on its own. */
const calls: Record<string, (store: AppendableStore) => Promise<unknown>> = {
  identity: (store) => store.identity(),
  claim: (store) => store.claim(newId()),
  stat: (store) => store.stat(key),
  read: (store) => readAll(store, key, 0, 1000),
  delete: (store) => store.delete(key),
  list: (store) => store.list(null, 10),
  sweep: (store) => store.sweep(new Date()),
  'write of little': (store) => writeContent(store, key, little),
  'write of more': (store) => writeContent(store, key, more),
  'making staged content': (store) => store.createStaged(newId()),
  'asking for an offset': (store) => store.stagedOffset(newId()),
  'appending a little': (store) => append(store, newId(), 0, 'x', { create: true }),
  'appending more': (store) => append(store, newId(), 0, Buffer.alloc(9 * mebibyte), { create: true }),
  sealing: (store) => store.seal(newId(), key, async () => undefined),
  discarding: (store) => store.discard(newId()),
  'write in parts': (store) => writeContent(store, key, inParts),
};

const faults: Record<string, Handler> = {
  'answers 500': (_request, response) => fail(response, 500, 'InternalError'),
  'answers 503 in HTML': (_request, response) => response.writeHead(503, { 'content-type': 'text/html' }).end('<h1>no'),
  'refuses the keys, which it repeats': (_request, response) => fail(response, 403, 'InvalidAccessKeyId'),
  'does not permit it': (_request, response) => fail(response, 403, 'AccessDenied'),
  'knows no such bucket': (request, response) => fail(response, 404, request.method === 'HEAD' ? '' : 'NoSuchBucket'),
  'sends elsewhere': (request, response) => {
    response.writeHead(307, { location: `http://${request.headers.host}/elsewhere` }).end();
  },
  'never answers': () => undefined,
  'reads all and never answers': (request) => void request.resume(),
  'closes at once': (request) => void request.socket.destroy(),
  'resets the connection': (request) => void request.socket.resetAndDestroy(),
  'talks nonsense': (request) => void request.socket.end('SSH-2.0-OpenSSH_9.2\r\n\r\n'),
  'stops in the middle of its headers': (request) => void request.socket.write('HTTP/1.1 200 OK\r\nContent-Le'),
};

describe('an S3 store with a server that fails', () => {
  let server: Server;
  /** Waits for hardly anything. */
  let store: AppendableStore;
  /** For what has to go well. */
  let patient: AppendableStore;
  let agent: HttpAgent;
  let agents: StoreAgents;
  let handler: Handler;
  let config: S3Config;
  let asked: string[];
  /** Of each request, which command it belongs to. */
  let commands: string[];

  beforeEach(async () => {
    asked = [];
    commands = [];
    server = createServer((request, response) => {
      asked.push(`${request.method} ${request.url}`);
      commands.push(String(request.headers['amz-sdk-invocation-id']));
      handler(request, response);
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const address = server.address();
    if (typeof address !== 'object' || !address) throw new Error('no port');
    agent = new HttpAgent({ keepAlive: true });
    const place = { region: 'us-east-1', bucket: 'some', prefix: 'a/b', forcePathStyle: true };
    config = { endpoint: `http://127.0.0.1:${address.port}`, ...place, ...secrets };
    agents = { http: agent, https: new HttpsAgent() };
    store = await S3Store.open(config, agents, impatient);
    patient = await S3Store.open(config, agents);
  });

  afterEach(async () => {
    agent.destroy();
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  });

  for (const [fault, misbehave] of Object.entries(faults)) {
    test(`that ${fault} is unavailable to every call, once, and no secret is told`, async () => {
      handler = misbehave;
      for (const [name, call] of Object.entries(calls)) {
        asked = [];
        const error = await refuses(call(store), 'unavailable').catch((cause: unknown) => {
          throw new Error(name, { cause });
        });
        const told = inspect(error, { depth: 20, showHidden: true });
        for (const secret of Object.values(secrets)) expect(told).not.toContain(secret);
        // Not by what was asked: a request that was given up may still arrive while the next call is made.
        expect(new Set(commands).size).toBe(commands.length);
        expect(asked.filter((request) => request.includes('elsewhere'))).toEqual([]);
      }
    });
  }

  test('that is not there at all is unavailable to every call', async () => {
    server.close();
    await once(server, 'close');
    for (const call of Object.values(calls)) await refuses(call(store), 'unavailable');
    server = createServer();
    await once(server.listen(0, '127.0.0.1'), 'listening');
  });

  test('connects through the agents that it was given only, and tells what they refuse', async () => {
    let made = 0;
    class CountingAgent extends HttpAgent {
      override createConnection(
        ...[options, callback]: Parameters<HttpAgent['createConnection']>
      ): Duplex | null | undefined {
        made += 1;
        if (refusing) throw new AppError('unavailable', 'This address is not allowed.');
        return super.createConnection(options, callback);
      }
    }
    let refusing = false;
    let connections = 0;
    server.on('connection', () => (connections += 1));
    const counting = new CountingAgent();
    const counted = await S3Store.open(config, { http: counting, https: new HttpsAgent() });
    for (const content of [little, more, inParts]) {
      handler = multipart((_request, response) => respond(response, '<CompleteMultipartUploadResult/>'), content.size);
      await writeContent(counted, key, content);
    }
    expect(connections).toBeGreaterThan(2);
    expect(made).toBe(connections);
    refusing = true;
    for (const call of Object.values(calls)) {
      expect((await refuses(call(counted), 'unavailable')).detail).toBe('This address is not allowed.');
    }
    expect(made).toBeGreaterThan(connections);
    counting.destroy();
  });

  test('and is full is told as such, also in the middle of a blob', async () => {
    handler = (request, response) => {
      if (request.method === 'POST')
        respond(response, '<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>');
      else fail(response, 507, 'XMinioStorageFull');
    };
    for (const content of [little, more, inParts]) {
      await refuses(writeContent(patient, key, content), 'insufficient_storage');
    }
    expect(asked.at(-1)).toMatch(/^DELETE .*uploadId=u/);
  });

  test('when it puts parts together gives the upload up', async () => {
    const hurried = await S3Store.open(config, agents, { ...usualLimits, completeMs: 150 });
    const endings: Record<string, Handler> = {
      'fails with status 200': (_request, response) => respond(response, '<Error><Code>InternalError</Code></Error>'),
      'never answers': () => undefined,
      'closes half-way': (_request, response) => {
        response.write('<CompleteMulti', () => response.destroy());
      },
    };
    for (const complete of Object.values(endings)) {
      handler = multipart(complete, 0);
      await refuses(writeContent(hurried, key, inParts), 'unavailable');
      expect(asked.at(-1)).toMatch(/^DELETE .*uploadId=u/);
    }
    handler = multipart(
      (_request, response) => respond(response, '<CompleteMultipartUploadResult/>'),
      65 * mebibyte - 1,
    );
    await refuses(writeContent(hurried, key, inParts), 'unavailable');
  });

  test('that says that it kept a blob is asked how much of it', async () => {
    for (const content of [little, more]) {
      for (const size of [0, content.size - 1, content.size + 1]) {
        handler = multipart(() => undefined, size);
        await refuses(writeContent(patient, key, content), 'unavailable');
      }
      handler = multipart(() => undefined, content.size);
      await writeContent(patient, key, content);
    }
  });

  test('whose listing has no end, or goes round, is left, whatever it lists', async () => {
    const id = newId();
    const pad = (count: number): string => String(count).padStart(16, '0');
    let page = 0;
    const endless: Handler = (_request, response) => {
      page += 1;
      const keys = Array.from({ length: 1_000 }, (_, at): [string, string] => [
        `a/b/staging/${id}/${pad(page * 1_000 + at)}`,
        'true',
      ]);
      respond(response, listing(...keys));
    };
    const round: Handler = (_request, response) => {
      page += 1;
      respond(response, listing([`a/b/staging/${id}/${pad(page % 2)}`, 'true']));
    };
    for (handler of [endless, round]) {
      await refuses(patient.stagedOffset(id), 'unavailable');
      await refuses(patient.discard(id), 'unavailable');
    }
    expect(asked.filter((request) => request.startsWith('DELETE'))).toEqual([]);
    const uploads = (next: string): string =>
      `<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>${next}</ListMultipartUploadsResult>`;
    handler = (_request, response) => respond(response, uploads(''));
    await refuses(patient.sweep(new Date()), 'unavailable');
    handler = (_request, response) => respond(response, uploads('<NextKeyMarker>k</NextKeyMarker>'));
    await refuses(patient.sweep(new Date()), 'unavailable');
    handler = (_request, response) => {
      page += 1;
      respond(response, uploads(`<NextKeyMarker>${['k', 'l'][page % 2]}</NextKeyMarker>`));
    };
    asked = [];
    await refuses(patient.sweep(new Date()), 'unavailable');
    expect(asked.length).toBeLessThanOrEqual(1_000);
  });

  test('when it copies is not believed before it says what it copied, and has it', async () => {
    const copied = '<CopyObjectResult><ETag>"e"</ETag></CopyObjectResult>';
    const answers: Record<string, Handler> = {
      'fails with status 200': (_request, response) => respond(response, '<Error><Code>InternalError</Code></Error>'),
      'says nothing at all': (_request, response) => respond(response, ''),
      'has lost a byte': (_request, response) => respond(response, copied),
      'closes half-way': (_request, response) => void response.write('<CopyObj', () => response.destroy()),
      'never answers': () => undefined,
    };
    for (const [name, copy] of Object.entries(answers)) {
      let copies = 0;
      handler = (request, response) => {
        if (request.method === 'PUT') {
          copies += 1;
          copy(request, response);
          return;
        }
        const lost = copies > 0 && name === 'has lost a byte';
        response.writeHead(200, { 'content-length': lost ? 99 : 100, etag: '"e"' }).end();
      };
      const pinned = await store.serverCopy(store, key);
      await refuses(Promise.resolve(pinned?.make(never)), 'unavailable').catch((cause: unknown) => {
        throw new Error(name, { cause });
      });
    }
  });

  test('when it reads breaks the stream, and ends it never short', async () => {
    const whole = Buffer.alloc(1000, 'x');
    const range = { 'content-range': 'bytes 0-999/1000' };
    const answers: Record<string, Handler> = {
      'closes half-way': (_request, response) => {
        response
          .writeHead(206, { ...range, 'content-length': 1000 })
          .write(whole.subarray(0, 500), () => response.destroy());
      },
      'falls silent half-way': (_request, response) => {
        response.writeHead(206, { ...range, 'content-length': 1000 }).write(whole.subarray(0, 500));
      },
      'sends too little': (_request, response) =>
        void response.writeHead(206, { ...range, 'content-length': 999 }).end(whole.subarray(1)),
      'sends too little, in chunks': (_request, response) => void response.writeHead(206, range).end(whole.subarray(1)),
      'sends too much': (_request, response) => void response.writeHead(206, range).end(Buffer.alloc(1001)),
      'sends without an end': (_request, response) => {
        response.writeHead(206, range);
        const more = (): boolean => response.write(Buffer.alloc(100_000));
        response.on('drain', more);
        more();
      },
      'sends another range': (_request, response) => {
        response.writeHead(206, { 'content-range': 'bytes 1-1000/2000' }).end(whole);
      },
      'knows no ranges': (_request, response) => void response.writeHead(200).end(whole),
    };
    for (const [name, answer] of Object.entries(answers)) {
      handler = answer;
      await refuses(readAll(store, key, 0, 1000), 'unavailable').catch((cause: unknown) => {
        throw new Error(name, { cause });
      });
    }
    handler = (_request, response) =>
      void response.writeHead(206, { 'content-range': 'bytes 0-499/500' }).end(whole.subarray(0, 500));
    await refuses(readAll(patient, key, 0, 1000), 'not_found');
  });

  test('is let go of when a reader goes away, is cancelled, or cancels before there is an answer', async () => {
    const closed = (): Promise<unknown> => once(server, 'gone');
    handler = (request, response) => {
      request.socket.once('close', () => server.emit('gone'));
      response.writeHead(206, { 'content-range': 'bytes 0-999/1000' }).write('x');
    };
    const gone = closed();
    (await patient.read(key, { start: 0, end: 1000 }, never)).destroy();
    await gone;
    const cancel = new AbortController();
    const cancelled = closed();
    const stream = await patient.read(key, { start: 0, end: 1000 }, cancel.signal);
    cancel.abort(new AppError('gone', 'for a reason'));
    await refuses(stream.toArray(), 'gone');
    await cancelled;
    const early = new AbortController();
    handler = (request) => {
      request.socket.once('close', () => server.emit('gone'));
      early.abort();
    };
    const left = closed();
    await refuses(patient.read(key, { start: 0, end: 1000 }, early.signal), 'unavailable');
    await left;
  });

  test('when it lists is not believed where its answer is not whole', async () => {
    const object = (more: string): string => `<Contents><Key>a/b/${key}</Key>${more}</Contents>`;
    const size = '<Size>3</Size>';
    const time = '<LastModified>2026-01-01T00:00:00.000Z</LastModified>';
    const answers: Record<string, string> = {
      'cut off': `<ListBucketResult>${object(size + time)}<Contents><Key>`,
      'without a size': `<ListBucketResult>${object(time)}</ListBucketResult>`,
      'without a time': `<ListBucketResult>${object(size)}</ListBucketResult>`,
      'of another prefix': `<ListBucketResult>${object(size + time).replace('a/b', 'c')}</ListBucketResult>`,
      'that never goes on': '<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>',
      'that is no XML': 'no',
      'that is too long': `<ListBucketResult>${object(size + time).repeat(50_000)}</ListBucketResult>`,
      'that is too deep': '<a>'.repeat(1_000_000),
    };
    for (const [name, answer] of Object.entries(answers)) {
      handler = (_request, response) => respond(response, answer);
      await refuses(store.list(null, 10), 'unavailable').catch((cause: unknown) => {
        throw new Error(name, { cause });
      });
    }
    const pages: Record<string, [string, string][]> = {
      'that goes back': [[`a/b/${key}`, 'true']],
      'that says again what it said': [
        [`a/b/blobs/ff/${newId()}`, 'true'],
        [`a/b/blobs/00/${newId()}`, 'true'],
      ],
      'outside of the folder that was asked for': [['a/b/staging/x', 'false']],
      'outside of it by dots': [['a/b/../blobs/x', 'false']],
    };
    for (const [name, listed] of Object.entries(pages)) {
      handler = (_request, response) => respond(response, listing(...listed));
      await refuses(store.list('blobs/ff/~', 10), 'unavailable').catch((cause: unknown) => {
        throw new Error(name, { cause });
      });
    }
    const bomb =
      '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY f SYSTEM "file:///etc/passwd">]>';
    handler = (_request, response) =>
      respond(response, `${bomb}<ListBucketResult><Name>&b;&f;</Name></ListBucketResult>`);
    expect((await patient.list(null, 10)).blobs).toEqual([]);
  });
});

function fail(response: ServerResponse, status: number, code: string): void {
  const text = `<Error><Code>${code}</Code><Message>${secrets.accessKeyId}</Message><AWSAccessKeyId>${secrets.accessKeyId}</AWSAccessKeyId></Error>`;
  response.writeHead(status, { 'content-type': 'application/xml' }).end(code === '' ? '' : text);
}
