import { createServer } from 'node:http';
import { listenAndTell } from './listen.ts';

// Answers at once: what the driver can do at most is measured against it.
const server = createServer((request, response) => {
  if (request.method === 'GET') response.writeHead(204).end();
  else request.on('end', () => response.writeHead(204).end()).resume();
});
listenAndTell(server);
