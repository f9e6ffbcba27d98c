import pg from 'pg';
import { gzipSync } from 'node:zlib';
import { expectStatus, until } from './client.ts';
import type { Answer, Client, Json } from './client.ts';
import { receive } from './content.ts';
import type { System } from './system.ts';

/** All metadata as the service gives them out, still compressed. */
export async function exportCompressed(admin: Client, id?: string): Promise<Buffer> {
  const query = id === undefined ? '' : `?id=${id}`;
  const { status, headers, bytes, whole } = await receive(admin, `/api/exports/metadata${query}`, {
    'accept-encoding': 'gzip',
  });
  if (status !== 200 || !whole || headers.get('content-encoding') !== 'gzip') {
    throw new Error(
      `the export was answered ${status}, ${whole ? 'whole' : 'broken off'}: ${bytes.toString().slice(0, 500)}`,
    );
  }
  return bytes;
}

/** The metadata of now. */
export async function exported(admin: Client): Promise<Json> {
  return expectStatus(await admin.get('/api/exports/metadata'), 200).json;
}

function sendDocument(admin: Client, route: string, compressed: Buffer): Promise<Answer> {
  const headers = { 'content-type': 'application/json', 'content-encoding': 'gzip' };
  return admin.call('POST', `/api/exports/metadata/${route}`, { headers, raw: new Uint8Array(compressed) });
}

export async function validate(admin: Client, document: Buffer | Json): Promise<Json> {
  return expectStatus(await sendDocument(admin, 'validate', compressedOf(document)), 200).json;
}

export async function planRestore(admin: Client, document: Buffer | Json): Promise<Json> {
  return expectStatus(await sendDocument(admin, 'restore-plan', compressedOf(document)), 200).json;
}

/** What an import of that plan answers; it may be a refusal. */
export function importPlan(admin: Client, plan: Json): Promise<Answer> {
  const body = { confirm_replace: true, validation_token: plan['validation_token'] };
  return admin.post('/api/exports/metadata/import', body);
}

/** A compressed document as it is, any other compressed. */
function compressedOf(document: Buffer | Json): Buffer {
  return Buffer.isBuffer(document) ? document : gzipSync(JSON.stringify(document));
}

export async function setMode(admin: Client, mode: 'normal' | 'read_only'): Promise<void> {
  expectStatus(await admin.call('PUT', '/api/system/mode', { body: { mode } }), 200);
}

export async function integrity(admin: Client): Promise<Json> {
  return expectStatus(await admin.get('/api/exports/metadata/integrity'), 200).json;
}

/** A full reconcile that begins after this was asked for, which may be another one; gives its result. */
export async function reconcile(admin: Client, limitMs = 120_000): Promise<Json> {
  const { json } = expectStatus(await admin.post('/api/jobs/enqueue-full-reconcile'), 202);
  const result = await finished(admin, json['job'].id, limitMs);
  return 'covered_by' in result ? finished(admin, result['covered_by'], limitMs) : result;
}

/** The result of a job, once it has one. */
export async function finished(admin: Client, jobId: string, limitMs = 120_000): Promise<Json> {
  return until(async () => {
    const { json: job } = expectStatus(await admin.get(`/api/jobs/${jobId}`), 200);
    if (job['state'] === 'failed' || job['state'] === 'cancelled') throw new Error(JSON.stringify(job));
    return job['state'] === 'succeeded' && job['result'];
  }, limitMs);
}

/** Stops the system as a power cut does and takes its database away; an empty one is there when it starts again. */
export async function loseDatabase(system: System): Promise<void> {
  await system.kill();
  const url = new URL(system.databaseUrl);
  const name = url.pathname.slice(1);
  url.pathname = '/postgres';
  const server = new pg.Client({ connectionString: url.href });
  await server.connect();
  await server.query(`drop database "${name}" with (force)`);
  await server.query(`create database "${name}"`);
  await server.end();
}
