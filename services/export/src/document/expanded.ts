import { pipeline } from 'node:stream';
import type { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { AppError } from '@stowage/common/errors';
import { notJson, Unreadable } from './unreadable.ts';

export interface Expanding {
  gzip: boolean;
  /** The most bytes of the body, as it comes and expanded. */
  limit: number;
  signal: AbortSignal;
}

/**
 * The bytes of a body, expanded where it is compressed; several members of gzip are one text. Throws `payload_too_large` at
 * the limit, `validation_failed` for what is not gzip, Unreadable where it is cut short. The body itself is left as it is,
 * so that its sender can still be answered.
 */
export async function* expanded(body: Readable, { gzip, limit, signal }: Expanding): AsyncGenerator<Buffer> {
  const stop = new AbortController();
  const stopped = AbortSignal.any([signal, stop.signal]);
  const source = counted(body, limit, stopped);
  let total = 0;
  try {
    for await (const chunk of gzip ? gunzipped(source) : source) {
      total += chunk.length;
      if (total > limit) throw tooLarge(limit);
      yield chunk;
    }
  } finally {
    stop.abort();
  }
}

/** The body's chunks. Destroying what reads them must not destroy the body: `iterator` would. */
async function* counted(body: Readable, limit: number, signal: AbortSignal): AsyncGenerator<Buffer> {
  let total = 0;
  for await (const chunk of body.iterator({ destroyOnReturn: false })) {
    signal.throwIfAborted();
    if (!(chunk instanceof Uint8Array)) throw new TypeError('the body is no stream of bytes');
    total += chunk.length;
    if (total > limit) throw tooLarge(limit);
    yield Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length);
  }
}

async function* gunzipped(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const gunzip = createGunzip({ chunkSize: 256 * 1024 });
  // A failure of either end is seen by who reads.
  pipeline(source, gunzip, () => undefined);
  try {
    for await (const chunk of gunzip) if (Buffer.isBuffer(chunk)) yield chunk;
  } catch (error) {
    throw gzipFault(error);
  } finally {
    gunzip.destroy();
  }
}

function gzipFault(error: unknown): unknown {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (code === 'Z_BUF_ERROR')
    return new Unreadable({ pointer: '', code: 'truncated', detail: 'The gzip stream ends in the middle.' });
  if (typeof code === 'string' && code.startsWith('Z_')) {
    return notJson('The body is not what Content-Encoding says: its gzip is broken.', '', 0);
  }
  return error;
}

function tooLarge(limit: number): AppError {
  return new AppError('payload_too_large', `The document is longer than ${limit} bytes (STOWAGE_DOCUMENT_LIMIT).`);
}
