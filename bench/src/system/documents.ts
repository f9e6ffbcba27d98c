import { createReadStream, createWriteStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { fieldsOf } from './api.ts';
import type { Stowage } from './stowage.ts';

/** Downloads a metadata document to a file, as it comes; gives how many bytes came. Throws where it does not come whole. */
export async function download({ port, token }: Stowage, file: string, gzip: boolean): Promise<number> {
  const headers = { authorization: `Bearer ${token}`, 'accept-encoding': gzip ? 'gzip' : 'identity' };
  const asked = request({ port, path: '/api/exports/metadata', headers });
  const answered = answerOf(asked);
  asked.end();
  const answer = await answered;
  if (answer.statusCode !== 200) throw new Error(`the export was answered with ${answer.statusCode}`);
  if ((answer.headers['content-encoding'] === 'gzip') !== gzip) throw new Error('not in the encoding asked for');
  await pipeline(answer, createWriteStream(file));
  return (await stat(file)).size;
}

/** Sends a file as the body of a POST and gives the body of the answer. Throws where that is no 200. */
export async function sendDocument(
  { port, token }: Stowage,
  path: string,
  file: string,
  gzip: boolean,
): Promise<Record<string, unknown>> {
  const headers = {
    authorization: `Bearer ${token}`,
    'content-type': 'application/json',
    'content-length': (await stat(file)).size,
    ...(gzip ? { 'content-encoding': 'gzip' } : {}),
  };
  const asked = request({ port, path, method: 'POST', headers });
  const answered = answerOf(asked);
  const [answer] = await Promise.all([answered, pipeline(createReadStream(file, { highWaterMark: 2 ** 19 }), asked)]);
  const body = await text(answer);
  if (answer.statusCode !== 200)
    throw new Error(`${path} was answered with ${answer.statusCode}: ${body.slice(0, 2_000)}`);
  return fieldsOf(JSON.parse(body));
}

function answerOf(asked: ReturnType<typeof request>): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    asked.once('response', resolve).once('error', reject);
  });
}
