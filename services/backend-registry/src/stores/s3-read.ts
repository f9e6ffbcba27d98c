import { Readable } from 'node:stream';
import { AppError, unavailable } from '@stowage/common/errors';
import type { ByteRange } from './blob-store.ts';
import { RemoteStream } from './remote-stream.ts';
import { withDeadline } from './s3-calls.ts';
import type { S3Connection } from './s3-connection.ts';
import { hasStatus, isMissing } from './s3-errors.ts';
import { requireWholeSize } from './whole-size.ts';

/** Made once: for an abort without a reason Node makes an exception with its stack, at the end of each read. */
const notWanted = new Error('The answer is not wanted any more.');

/** The bytes of a range that is not empty, as BlobStore.read says; errors of the SDK are thrown as they are. */
export async function readRange(
  s3: S3Connection,
  objectKey: string,
  range: ByteRange,
  signal: AbortSignal,
): Promise<Readable> {
  const { start, end } = range;
  // Lives as long as the stream: aborting it closes the connection.
  const request = new AbortController();
  const command = new s3.sdk.GetObjectCommand({
    Bucket: s3.bucket,
    Key: objectKey,
    Range: `bytes=${start}-${end - 1}`,
  });
  const release = (): void => request.abort(notWanted);
  try {
    const found = await withDeadline(s3.limits.callMs, signal, (deadline) => {
      deadline.addEventListener('abort', release, { once: true });
      return s3.client
        .send(command, { abortSignal: request.signal })
        .finally(() => deadline.removeEventListener('abort', release));
    });
    requireRange(found.ContentRange, range);
    if (!(found.Body instanceof Readable)) throw unavailable('The backend gave no content.');
    return new RemoteStream({ body: found.Body, length: end - start, idleMs: s3.limits.idleMs, release }, signal);
  } catch (error) {
    release();
    if (isMissing(error)) throw new AppError('not_found', 'There is no such blob on this backend.');
    if (hasStatus(error, 416)) throw shorter();
    throw error;
  }
}

/** A server that answers with other bytes than those asked for must not be believed. */
function requireRange(header: string | undefined, range: ByteRange): void {
  const { start, end, of } = range;
  const [, first, last, total] = /^bytes (\d{1,16})-(\d{1,16})\/(\d{1,16})?/.exec(header ?? '') ?? [];
  if (first === undefined || last === undefined || Number(first) !== start) {
    throw unavailable('The backend does not answer with the range that was asked for.');
  }
  if (Number(last) !== end - 1) throw shorter();
  if (of === undefined) return;
  if (total === undefined) throw unavailable('The backend does not say how large a blob is.');
  requireWholeSize(Number(total), range);
}

function shorter(): AppError {
  return new AppError('not_found', 'The blob on this backend is shorter than it should be.');
}
