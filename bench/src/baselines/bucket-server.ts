import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { seededFileId } from '../system/seed.ts';
import { listenAndTell } from './listen.ts';
import { keysAfter } from './seeded-keys.ts';

// An S3 server that lists seeded blobs which it makes up, in the order of their keys, and keeps only what is put: the marker,
// and what a check writes. Knows one bucket, no signatures and no prefix.
const [directory, count, size] = process.argv.slice(2).map(Number);
if (directory === undefined || count === undefined || size === undefined)
  throw new Error('usage: bucket-server.ts <number of the seeded directory> <count> <bytes of each>');

const pageMax = 1_000;
const stored = new Map<string, Buffer>();
const modified = new Date(Date.now() - 3_600_000).toISOString();

const server = createServer((request, response) => {
  answer(request, response).catch((error: unknown) => {
    response.destroy(error instanceof Error ? error : new Error(String(error)));
  });
});
listenAndTell(server);

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = new URL(request.url ?? '/', 'http://bucket');
  const key = url.pathname.split('/').slice(2).join('/');
  const body = await buffer(request);
  if (key === '') return sendXml(response, url.searchParams.has('uploads') ? noUploads : listing(url.searchParams));
  if (request.method === 'PUT') {
    stored.set(key, body);
    response.writeHead(200, { etag: '"0"', 'content-length': 0 }).end();
  } else if (request.method === 'DELETE') {
    stored.delete(key);
    response.writeHead(204).end();
  } else {
    sendObject(request, response, stored.get(key) ?? null);
  }
}

function sendObject(request: IncomingMessage, response: ServerResponse, object: Buffer | null): void {
  if (object === null) return sendXml(response, '<Error><Code>NoSuchKey</Code></Error>', 404);
  const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '') ?? [];
  const [start, end] = [Number(from ?? 0), Math.min(Number(to ?? Infinity), object.length - 1)];
  const range = from === undefined ? {} : { 'content-range': `bytes ${start}-${end}/${object.length}` };
  const part = object.subarray(start, end + 1);
  response.writeHead(from === undefined ? 200 : 206, { ...range, etag: '"0"', 'content-length': part.length });
  response.end(request.method === 'HEAD' ? undefined : part);
}

const noUploads = '<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>';

function listing(query: URLSearchParams): string {
  const most = Math.min(Number(query.get('max-keys') ?? pageMax), pageMax);
  const isOfBlobs = (query.get('prefix') ?? '').startsWith('blobs/');
  const keys = isOfBlobs ? keysAfter(query.get('start-after'), most + 1, { count: count ?? 0, idOf }) : [];
  const contents = keys
    .slice(0, most)
    .map(
      (key) =>
        `<Contents><Key>${key}</Key><LastModified>${modified}</LastModified><ETag>"0"</ETag><Size>${size}</Size></Contents>`,
    );
  const more = keys.length > most;
  return `<ListBucketResult><KeyCount>${contents.length}</KeyCount><MaxKeys>${most}</MaxKeys><EncodingType>url</EncodingType>\
<IsTruncated>${more}</IsTruncated>${contents.join('')}</ListBucketResult>`;
}

function idOf(n: number): string {
  return seededFileId(directory ?? 0, n);
}

function sendXml(response: ServerResponse, xml: string, status = 200): void {
  const text = `<?xml version="1.0" encoding="UTF-8"?>${xml}`;
  response
    .writeHead(status, { 'content-type': 'application/xml', 'content-length': Buffer.byteLength(text) })
    .end(text);
}
