import { createServer } from 'node:http';
import { pipeline, Readable } from 'node:stream';
import { listenAndTell } from './listen.ts';

// Does nothing, so that it shows what the driver can do: forgets what it gets, and answers GET /<n> with n MiB.
const piece = Buffer.alloc(1 << 20);

const server = createServer((request, response) => {
  if (request.method !== 'GET') {
    request.on('end', () => response.writeHead(204).end()).resume();
    return;
  }
  const pieces = Number((request.url ?? '').slice(1));
  if (pieces === 0) {
    response.writeHead(204).end();
    return;
  }
  response.writeHead(200, { 'Content-Length': pieces * piece.length });
  pipeline(Readable.from(Array.from({ length: pieces }, () => piece)), response, () => undefined);
});
listenAndTell(server);
