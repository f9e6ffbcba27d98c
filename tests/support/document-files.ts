import { createReadStream, createWriteStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { request } from 'node:http';
import type { ClientRequest, IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';

/** Where documents come from and go to, as an admin. Unlike fetch it waits for an answer as long as it takes. */
export interface DocumentServer {
  url: string;
  token: string | null;
}

/** Downloads the metadata document to a file, as it comes; gives its bytes. Throws where it does not come whole. */
export async function downloadDocument(server: DocumentServer, file: string, gzip = false): Promise<number> {
  const asked = requestOf(server, '/api/exports/metadata', 'GET', { 'accept-encoding': gzip ? 'gzip' : 'identity' });
  const answered = answerOf(asked);
  asked.end();
  const answer = await answered;
  if (answer.statusCode !== 200) throw new Error(`the export was answered with ${answer.statusCode}`);
  if ((answer.headers['content-encoding'] === 'gzip') !== gzip) throw new Error('not in the encoding asked for');
  await pipeline(answer, createWriteStream(file));
  return (await stat(file)).size;
}

/** POSTs a file and gives the body of the answer, which is JSON. Throws where the status is not 200. */
export async function sendDocument(server: DocumentServer, path: string, file: string, gzip = false): Promise<unknown> {
  const asked = requestOf(server, path, 'POST', {
    'content-type': 'application/json',
    'content-length': (await stat(file)).size,
    ...(gzip ? { 'content-encoding': 'gzip' } : {}),
  });
  const sent = pipeline(createReadStream(file, { highWaterMark: 2 ** 19 }), asked);
  const [answer] = await Promise.all([answerOf(asked), sent]);
  return okOf(path, answer);
}

/** POSTs JSON and gives the body of the answer. Throws where the status is not 200. */
export async function postAndWait(server: DocumentServer, path: string, body: object): Promise<unknown> {
  const asked = requestOf(server, path, 'POST', { 'content-type': 'application/json' });
  const answered = answerOf(asked);
  asked.end(JSON.stringify(body));
  return okOf(path, await answered);
}

function requestOf(
  { url, token }: DocumentServer,
  path: string,
  method: string,
  headers: Record<string, string | number>,
): ClientRequest {
  return request(`${url}${path}`, { method, headers: { authorization: `Bearer ${token ?? ''}`, ...headers } });
}

function answerOf(asked: ClientRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    asked.once('response', resolve).once('error', reject);
  });
}

async function okOf(path: string, answer: IncomingMessage): Promise<unknown> {
  const body = await text(answer);
  if (answer.statusCode === 200) return JSON.parse(body);
  throw new Error(`${path} was answered with ${answer.statusCode}: ${body.slice(0, 2_000)}`);
}
