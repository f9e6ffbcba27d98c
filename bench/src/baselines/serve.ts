import { createReadStream } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';

const wholeMax = 65_536;
const readBytes = 512 * 1024;

/** Sends a file: a small one whole, a big one in long reads; or the one range that is asked for. */
export async function serve(request: IncomingMessage, response: ServerResponse, path: string): Promise<void> {
  const { size } = await stat(path);
  const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '');
  const start = range ? Number(range[1]) : 0;
  const end = range ? Number(range[2]) : size - 1;
  const headers = { 'Content-Length': end - start + 1, 'Content-Type': 'application/octet-stream' };
  if (size <= wholeMax) {
    response.writeHead(200, headers).end(await readFile(path));
    return;
  }
  const more = range ? { 'Content-Range': `bytes ${start}-${end}/${size}` } : {};
  response.writeHead(range ? 206 : 200, { ...headers, ...more });
  createReadStream(path, { start, end, highWaterMark: readBytes }).pipe(response);
}
