import { expect } from '@jest/globals';
import { expectStatus, uploadIdOf, uploadMetadata } from './client.ts';
import type { Answer, Client } from './client.ts';
import { expectProblem } from './problems.ts';
import { RawConnection } from './raw-http.ts';
import type { HeaderLines } from './raw-http.ts';

export const offsetType = 'application/offset+octet-stream';

/** An upload that was made by POST /files. */
export interface MadeUpload {
  id: string;
  /** `/files/{id}`. */
  path: string;
  answer: Answer;
}

export interface UploadWish {
  /** In bytes; null defers it. */
  length: number | null;
  metadata?: Record<string, string>;
  headers?: Record<string, string>;
  /** Sent with the POST. */
  body?: Buffer;
}

/** POST /files as it is answered. */
export function createUpload(client: Client, wish: UploadWish): Promise<Answer> {
  const headers = {
    ...(wish.length === null ? { 'upload-defer-length': '1' } : { 'upload-length': String(wish.length) }),
    ...(wish.metadata ? { 'upload-metadata': uploadMetadata(wish.metadata) } : {}),
    ...wish.headers,
  };
  return client.tus('POST', '/files', headers, wish.body);
}

/** POST /files, which must succeed. */
export async function makeUpload(client: Client, wish: UploadWish): Promise<MadeUpload> {
  const answer = expectStatus(await createUpload(client, wish), 201);
  const id = uploadIdOf(answer);
  return { id, path: `/files/${id}`, answer };
}

/** PATCH as it is answered. */
export function append(
  client: Client,
  path: string,
  offset: number,
  body: Buffer,
  headers: Record<string, string> = {},
): Promise<Answer> {
  return client.tus('PATCH', path, { 'upload-offset': String(offset), ...headers }, body);
}

/** The offset that HEAD tells. */
export async function offsetOf(client: Client, path: string): Promise<number> {
  const answer = expectStatus(await client.tus('HEAD', path), 200);
  return Number(answer.headers.get('upload-offset'));
}

export function finalize(client: Client, upload: { id: string }, body: unknown = {}): Promise<Answer> {
  return client.post(`/api/uploads/${upload.id}/finalize`, body);
}

/** Uploads in one POST, without finalizing. */
export function completeUpload(client: Client, bytes: Buffer, metadata: Record<string, string>): Promise<MadeUpload> {
  return makeUpload(client, { length: bytes.length, metadata, ...(bytes.length > 0 ? { body: bytes } : {}) });
}

/** What a download gives. */
export async function contentOf(client: Client, fileId: string): Promise<Buffer> {
  return expectStatus(await client.get(`/api/files/${fileId}/download`), 200).bytes;
}

/** Expects a problem document of that code, with the tus header that every answer under /files has. */
export function expectTusProblem(answer: Answer, status: number, code: string): void {
  expectProblem(answer, status, code);
  expect(answer.headers.get('tus-resumable')).toBe('1.0.0');
}

/** The head of a PATCH on a connection of its own; the body is the test's to send. */
export async function openAppend(
  client: Client,
  path: string,
  options: { offset: number; length?: number; headers?: HeaderLines; method?: string },
): Promise<RawConnection> {
  const connection = await RawConnection.open(client.url);
  await connection.request(options.method ?? 'PATCH', path, [
    ['authorization', `Bearer ${client.token ?? ''}`],
    ['tus-resumable', '1.0.0'],
    ['content-type', offsetType],
    ['upload-offset', String(options.offset)],
    options.length === undefined ? ['transfer-encoding', 'chunked'] : ['content-length', String(options.length)],
    ...(options.headers ?? []),
  ]);
  return connection;
}
