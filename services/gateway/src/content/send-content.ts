import { timestampDate } from '@bufbuild/protobuf/wkt';
import { AppError } from '@stowage/common/errors';
import type { CallContext } from '@stowage/common/rpc/context';
import type { GetContentResponse } from '@stowage/proto/stowage/catalog/v1/content';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { AppDependencies } from '../app-types.ts';
import { contextOf } from '../http/call-context.ts';
import { allSent, beginAnswer, write } from '../http/outgoing.ts';
import { recordSent } from '../http/request-metrics.ts';
import { present } from '../routes/nodes.ts';
import { contentHeaders } from './content-headers.ts';
import { judge, rangeStands } from './preconditions.ts';
import { parseRange } from './ranges.ts';
import type { ByteRange } from './ranges.ts';
import type { ShortContent } from './short-content.ts';
import { noGoodCopy, readVerified } from './verified-reader.ts';
import type { BlobSource } from './verified-reader.ts';

/**
 * Answers a GET or HEAD for a file's bytes: conditions, one range, headers, then the content with back-pressure. The
 * first bytes are checked before the status line leaves, so that what can't be read is a clear 503; what fails later
 * breaks the connection, never ends it cleanly.
 */
export async function sendContent(
  dependencies: AppDependencies,
  request: FastifyRequest,
  reply: FastifyReply,
  fileId: string,
  { disposition, short }: { disposition: 'download' | 'stream'; short: ShortContent },
): Promise<FastifyReply> {
  const context = contextOf(request);
  const found = await dependencies.content.getContent({ fileId }, context);
  const file = present(found.file);
  const facts = present(file.file);
  const source = sourceOf(found);
  const modified = timestampDate(present(file.createdAt));
  const headers = contentHeaders(
    { name: file.name, mediaType: facts.mediaType, sha256: Buffer.from(facts.sha256), updatedAt: modified },
    disposition,
  );
  const etag = headers['etag'] ?? '';
  const verdict = judge(request.headers, etag, modified);
  if (verdict === 'failed') throw new AppError('precondition_failed', 'The content is not the one you have.');
  if (verdict === 'not_modified') return reply.code(304).headers(headers).removeHeader('content-type').send();
  // Known without a look at the backend, so that HEAD promises nothing that GET can't give.
  if (source.size > 0 && source.replicas.length === 0) throw noGoodCopy();
  const range = rangeOf(request, source.size, etag, modified);
  const { start, end } = range ?? { start: 0, end: source.size };
  const head: Head = {
    status: range ? 206 : 200,
    headers: {
      ...headers,
      'content-length': String(end - start),
      ...(range ? { 'content-range': `bytes ${start}-${end - 1}/${source.size}` } : {}),
    },
  };
  if (request.method === 'HEAD') return reply.code(head.status).headers(head.headers).send();
  const whole = await short.read(dependencies, source, context);
  if (whole) {
    recordSent(end - start);
    return reply.code(head.status).headers(head.headers).send(whole.subarray(start, end));
  }
  return sendBytes(dependencies, reply, head, source, { start, end }, context);
}

interface Head {
  status: number;
  headers: Record<string, string>;
}

/** The blob of a file and its readable replicas. */
export function sourceOf(found: GetContentResponse): BlobSource {
  const blob = present(found.blob);
  return { blobId: blob.id, size: Number(blob.size), checksums: blob.chunkCrc32c, replicas: found.replicas };
}

function rangeOf(request: FastifyRequest, size: number, etag: string, modified: Date): ByteRange | null {
  if (request.method !== 'GET' || !rangeStands(request.headers['if-range'], etag, modified)) return null;
  const range = parseRange(request.headers.range, size);
  if (range !== 'unsatisfiable') return range;
  throw new AppError('range_not_satisfiable', `The content has ${size} bytes.`, { members: { size } });
}

async function sendBytes(
  dependencies: AppDependencies,
  reply: FastifyReply,
  head: Head,
  source: BlobSource,
  range: ByteRange,
  context: CallContext,
): Promise<FastifyReply> {
  const pieces = readVerified(dependencies, source, range, context);
  const first = range.end > range.start ? await pieces.next() : { done: true as const, value: undefined };
  // Only now: a problem in place of the content must not bear the headers of the content.
  const response = beginAnswer(reply, head.status, head.headers);
  try {
    for (let piece = first; !piece.done; piece = await pieces.next()) {
      recordSent(piece.value.length);
      await write(response, piece.value, context.signal);
    }
    await allSent(response, context.signal);
    response.end();
  } catch (error) {
    if (!context.signal.aborted) reply.log.warn({ err: error }, 'A download broke off.');
    response.destroy();
  } finally {
    await pieces.return();
  }
  return reply;
}
