import { open } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { join } from 'node:path';
import { HashRing } from './hash-ring.ts';
import { listenAndTell } from './listen.ts';
import { receive } from './receive.ts';
import type { Receiving } from './receive.ts';
import { serve } from './serve.ts';

// Bare Node: `http` and `fs`, with no metadata and no authentication. PUT writes a file, GET sends it.
const [mode, directory] = process.argv.slice(2);
const modes: readonly Receiving[] = ['batch', 'fsync', 'crc', 'sha', 'shas'];
const receiving = modes.find((known) => known === mode);
if (!receiving || directory === undefined) throw new Error('usage: file-server.ts <mode> <directory>');
const ring = receiving === 'shas' ? new HashRing() : null;
await ring?.ready();

async function put(request: IncomingMessage, response: ServerResponse, path: string): Promise<void> {
  const file = await open(path, 'wx');
  try {
    if (ring) await ring.receive(request, file);
    else if (receiving) await receive(request, file, receiving);
  } finally {
    await file.close();
  }
  response.writeHead(201, { 'Content-Length': 0 }).end();
}

const server = createServer({ highWaterMark: 1 << 20 }, (request, response) => {
  const path = join(directory, (request.url ?? '').slice(1));
  const work = request.method === 'PUT' ? put(request, response, path) : serve(request, response, path);
  work.catch((error: unknown) => response.destroy(error instanceof Error ? error : new Error(String(error))));
});
listenAndTell(server);
