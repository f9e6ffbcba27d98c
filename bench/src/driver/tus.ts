import { expectStatus, fillerOf, headerOf, headOf } from './connection.ts';
import type { Answer, Connection } from './connection.ts';
import type { TusFileJob, TusFilesJob } from './jobs.ts';
import { inTurn, Latencies } from './latencies.ts';
import { openAll } from './requests.ts';
import { timed } from './run.ts';
import type { Outcome } from './run.ts';

const readBytes = 16_384;

/** Uploads one file by tus; the times of creation, content and finalize come as parts. */
export async function uploadFile(job: TusFileJob): Promise<Outcome> {
  const [connection] = await openAll(job.port, 1, readBytes);
  if (!connection) throw new Error('no connection');
  const latencies = new Latencies(1);
  try {
    return await timed(latencies, 1, async () => {
      const start = performance.now();
      const headers = creationHeaders(job.token, job.name, job.bytes);
      const made = await connection.send(headOf('POST', '/files', 0, headers));
      const location = locationOf(expectStatus(made, 201, 'POST /files'));
      const created = performance.now();
      for (let offset = 0; offset < job.bytes; offset += job.patchBytes) {
        const length = Math.min(job.patchBytes, job.bytes - offset);
        const head = headOf('PATCH', location, length, { ...bodyHeaders(job.token), 'Upload-Offset': String(offset) });
        expectStatus(await connection.sendLong(head, length), 204, `PATCH at ${offset}`);
      }
      const sent = performance.now();
      const id = await finalize(connection, job.token, location);
      latencies.note(start);
      const parts = {
        create: (created - start) / 1000,
        content: (sent - created) / 1000,
        finalize: (performance.now() - sent) / 1000,
      };
      return { bytes: job.bytes, ids: [id], parts };
    });
  } finally {
    connection.close();
  }
}

/** Uploads many small files by tus; one operation is a file, finalized. */
export async function uploadFiles(job: TusFilesJob): Promise<Outcome> {
  const connections = await openAll(job.port, job.connections, readBytes);
  const content = fillerOf(job.bytes);
  const creations = Array.from({ length: job.count }, (_, index) => {
    const headers = { ...creationHeaders(job.token, `${job.prefix}-${index}`, job.bytes), ...bodyHeaders(job.token) };
    return Buffer.concat([headOf('POST', '/files', content.length, headers), content]);
  });
  const latencies = new Latencies(job.count);
  try {
    return await timed(latencies, job.count, async () => {
      const ids = new Array<string>(job.count);
      await inTurn(connections, job.count, async (connection, index) => {
        const start = performance.now();
        const made = await connection.send(creations[index] ?? Buffer.alloc(0));
        const location = locationOf(expectStatus(made, 201, 'POST /files'));
        ids[index] = await finalize(connection, job.token, location);
        latencies.note(start);
      });
      return { bytes: job.count * job.bytes, ids };
    });
  } finally {
    for (const connection of connections) connection.close();
  }
}

async function finalize(connection: Connection, token: string | undefined, location: string): Promise<string> {
  const path = `/api/uploads/${location.slice(location.lastIndexOf('/') + 1)}/finalize`;
  const head = headOf('POST', path, 2, { ...authorization(token), 'Content-Type': 'application/json' });
  const request = Buffer.concat([head, Buffer.from('{}')]);
  const answer = expectStatus(await connection.send(request, true), 201, `POST ${path}`);
  const file: unknown = JSON.parse(answer.body);
  if (typeof file !== 'object' || file === null || !('id' in file) || typeof file.id !== 'string')
    throw new Error(`no file in ${answer.body}`);
  return file.id;
}

function creationHeaders(token: string | undefined, name: string, bytes: number): Record<string, string> {
  return {
    ...authorization(token),
    'Tus-Resumable': '1.0.0',
    'Upload-Length': String(bytes),
    'Upload-Metadata': `filename ${Buffer.from(name).toString('base64')}`,
  };
}

function bodyHeaders(token: string | undefined): Record<string, string> {
  return { ...authorization(token), 'Tus-Resumable': '1.0.0', 'Content-Type': 'application/offset+octet-stream' };
}

function authorization(token: string | undefined): Record<string, string> {
  return token === undefined ? {} : { Authorization: `Bearer ${token}` };
}

function locationOf(answer: Answer): string {
  const location = headerOf(answer, 'location');
  return location.slice(location.indexOf('/files/'));
}
