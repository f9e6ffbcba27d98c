import { newId } from '@stowage/common/ids';
import type pg from 'pg';
import { makeBackend, newBackend } from './backends.ts';
import { expectStatus } from './client.ts';
import type { Answer, Client, Json } from './client.ts';
import { unknownId } from './routes.ts';
import { uniqueName } from './system.ts';
import { completeUpload, offsetType } from './uploads.ts';

/** A request that a route takes as valid and carries out, on a thing of its own. */
export interface ValidRequest {
  /** The id in the path, or null where there is none. */
  id: string | null;
  body?: Json;
  headers?: Record<string, string>;
  raw?: Buffer;
  /** Good only as long as nothing changes: it is to be made right before it is sent. */
  shortLived?: boolean;
}

/** What makes the things that requests are about. */
export interface Maker {
  admin: Client;
  /** Whose uploads are. */
  owner: Client;
  database: pg.Client;
}

type Prepare = (maker: Maker) => Promise<ValidRequest>;

const tus = { 'tus-resumable': '1.0.0' };
const append = { ...tus, 'content-type': offsetType, 'upload-offset': '3' };
const plain: Prepare = async () => ({ id: null });

const about = (kind: (maker: Maker) => Promise<string>, rest: Partial<ValidRequest> = {}): Prepare => {
  return async (maker) => ({ id: await kind(maker), ...rest });
};

async function user({ admin }: Maker): Promise<string> {
  const account = { username: uniqueName('user'), password: 'a good long password', role: 'viewer' };
  return expectStatus(await admin.post('/api/users', account), 201).json['id'];
}

async function directory({ admin }: Maker): Promise<string> {
  return (await admin.makeDirectory(uniqueName('directory')))['id'];
}

async function file({ admin }: Maker): Promise<string> {
  return (await admin.putFile(uniqueName('file'), 'text', { type: 'text/plain' }))['id'];
}

async function upload({ owner }: Maker): Promise<string> {
  return (await completeUpload(owner, Buffer.from('abc'), { filename: uniqueName('upload') })).id;
}

async function backend({ admin }: Maker): Promise<string> {
  return (await makeBackend(admin))['id'];
}

async function disabledBackend(maker: Maker): Promise<string> {
  const id = await backend(maker);
  expectStatus(await maker.admin.post(`/api/backends/${id}/disable`), 200);
  return id;
}

async function failedJob({ database }: Maker): Promise<string> {
  const id = newId();
  await database.query(
    `insert into jobs.jobs (id, kind, state, error_code, error_detail, finished_at)
    values ($1, 'nobody_works_this', 'failed', 'internal', 'as a test wants it', now())`,
    [id],
  );
  return id;
}

async function pendingJob({ database }: Maker): Promise<string> {
  const id = newId();
  await database.query("insert into jobs.jobs (id, kind) values ($1, 'nobody_works_this')", [id]);
  return id;
}

/** A policy of its own for a class that no file has. */
async function policy(maker: Maker): Promise<string> {
  const fileClass = uniqueName('class').toLowerCase();
  const body = { backends: [await backend(maker)], replicas: 1 };
  expectStatus(await maker.admin.call('PUT', `/api/policies/placement/${fileClass}`, { body }), 200);
  return fileClass;
}

const recycled = (base: string, kind: (maker: Maker) => Promise<string>) => {
  return async (maker: Maker): Promise<string> => {
    const id = await kind(maker);
    expectStatus(await maker.admin.delete(`/api/${base}/${id}`), 200);
    return id;
  };
};

/** One for each closed route of the table in routes.ts. */
export const validRequests: Readonly<Record<string, Prepare>> = {
  'POST /api/auth/logout': plain,
  'GET /api/auth/me': plain,

  'GET /api/users': plain,
  'POST /api/users': async () => ({
    id: null,
    body: { username: uniqueName('new'), password: 'a good long password', role: 'admin' },
  }),
  'PATCH /api/users/{user_id}': about(user, { body: { role: 'admin' } }),
  'DELETE /api/users/{user_id}': about(user),

  'GET /api/directories/{directory_id}': about(directory),
  'GET /api/directories/{directory_id}/children': about(directory),
  'POST /api/directories': async () => ({ id: null, body: { name: uniqueName('made') } }),
  'POST /api/directories/{directory_id}/rename': async (maker) => ({
    id: await directory(maker),
    body: { name: uniqueName('renamed') },
  }),
  'POST /api/directories/{directory_id}/move': async (maker) => ({
    id: await directory(maker),
    body: { parent_id: await directory(maker) },
  }),
  'DELETE /api/directories/{directory_id}': about(directory),
  'POST /api/directories/{directory_id}/restore': about(recycled('directories', directory)),

  'GET /api/files/recycle-bin': plain,
  'DELETE /api/files/recycle-bin': async (maker) => {
    await recycled('files', file)(maker);
    return { id: null };
  },
  'GET /api/files/{file_id}': about(file),
  'GET /api/files/{file_id}/download': about(file),
  'HEAD /api/files/{file_id}/download': about(file),
  'GET /api/files/{file_id}/stream': about(file),
  'HEAD /api/files/{file_id}/stream': about(file),
  'GET /api/files/{file_id}/preview': about(file),
  'POST /api/files/{file_id}/rename': async (maker) => ({
    id: await file(maker),
    body: { name: uniqueName('renamed') },
  }),
  'POST /api/files/{file_id}/move': async (maker) => ({
    id: await file(maker),
    body: { directory_id: await directory(maker) },
  }),
  'DELETE /api/files/{file_id}': about(file),
  'POST /api/files/{file_id}/restore': about(recycled('files', file)),

  'POST /files': async () => ({ id: null, headers: { ...tus, 'upload-length': '3' } }),
  'HEAD /files/{upload_id}': about(upload, { headers: tus }),
  'PATCH /files/{upload_id}': about(upload, { headers: append, raw: Buffer.alloc(0) }),
  'DELETE /files/{upload_id}': about(upload, { headers: tus }),
  'POST /files/{upload_id}': about(upload, { headers: { ...append, 'x-http-method-override': 'DELETE' } }),
  'GET /api/uploads/{upload_id}': about(upload),
  'POST /api/uploads/{upload_id}/finalize': about(upload),

  'GET /api/backends': plain,
  'GET /api/backends/{backend_id}': about(backend),
  'POST /api/backends': async ({ admin }) => ({ id: null, body: await newBackend(admin) }),
  'PATCH /api/backends/{backend_id}': async (maker) => ({
    id: await backend(maker),
    body: { name: uniqueName('renamed') },
  }),
  'POST /api/backends/{backend_id}/check': about(backend),
  'POST /api/backends/{backend_id}/enable': about(backend),
  'POST /api/backends/{backend_id}/disable': about(backend),
  'POST /api/backends/{backend_id}/forget-replicas': about(disabledBackend, { body: { confirm: true } }),
  'DELETE /api/backends/{backend_id}': about(disabledBackend),

  'GET /api/jobs': plain,
  'GET /api/jobs/{job_id}': about(failedJob),
  'POST /api/jobs/{job_id}/retry': about(failedJob),
  'POST /api/jobs/{job_id}/cancel': about(pendingJob),
  'POST /api/jobs/run-pending': about(async () => '', { body: { kinds: ['nobody_works_that'] } }),
  'POST /api/jobs/enqueue-health-checks': plain,
  'POST /api/jobs/enqueue-full-reconcile': async () => ({ id: null, body: { remove_unknown: false } }),

  'GET /api/policies/placement': plain,
  'GET /api/policies/placement/preview': plain,
  'GET /api/policies/placement/{file_class}': about(policy),
  'PUT /api/policies/placement/{file_class}': async (maker) => ({
    id: uniqueName('class').toLowerCase(),
    body: { backends: [await backend(maker)], replicas: 1 },
  }),
  'DELETE /api/policies/placement/{file_class}': about(policy),

  'GET /api/exports/metadata': plain,
  'HEAD /api/exports/metadata': plain,
  'GET /api/exports/metadata/schema': plain,
  'GET /api/exports/metadata/integrity': plain,
  'POST /api/exports/metadata/validate': async ({ admin }) => ({
    id: null,
    headers: { 'content-type': 'application/json' },
    raw: (await admin.get('/api/exports/metadata')).bytes,
  }),
  'POST /api/exports/metadata/restore-plan': async ({ admin }) => ({
    id: null,
    headers: { 'content-type': 'application/json' },
    raw: (await admin.get('/api/exports/metadata')).bytes,
  }),
  'POST /api/exports/metadata/import': async ({ admin }) => {
    const raw = new Uint8Array((await admin.get('/api/exports/metadata')).bytes);
    const headers = { 'content-type': 'application/json' };
    const plan = expectStatus(await admin.call('POST', '/api/exports/metadata/restore-plan', { headers, raw }), 200);
    const token: string = plan.json['validation_token'];
    return { id: null, body: { confirm_replace: true, validation_token: token }, shortLived: true };
  },

  'GET /api/system/mode': plain,
  'PUT /api/system/mode': async () => ({ id: null, body: { mode: 'normal' } }),
};

/** Sends it, about another thing where one is named. */
export function sendValid(client: Client, route: string, request: ValidRequest, id = request.id): Promise<Answer> {
  const [method = '', template = ''] = route.split(' ');
  const path = template.replace(/\{\w+\}/, id ?? unknownId);
  const { headers = {}, body, raw } = request;
  if (raw !== undefined) return client.call(method, path, { headers, raw: new Uint8Array(raw) });
  return client.call(method, path, { headers, ...(body ? { body } : {}) });
}
