import type { Readable } from 'node:stream';
import type { CompletedPart } from '@aws-sdk/client-s3';
import { unavailable } from '@stowage/common/errors';
import type { ExpectedContent } from './blob-store.ts';
import { CheckedBody } from './checked-body.ts';
import { IdleLimit } from './idle-limit.ts';
import { BodyCutter, OutgoingBody } from './outgoing-body.ts';
import { shortCall, withDeadline } from './s3-calls.ts';
import type { S3Connection } from './s3-connection.ts';

const mebibyte = 1024 * 1024;

/** Up to this a blob is one PUT, in bytes; no part is smaller. A part is streamed, so its size costs no memory. */
const partBytes = 64 * mebibyte;

/** Up to this a blob is gathered before it is sent, in bytes: a server may answer before it saw the end of a short body. */
const gatheredBytes = mebibyte;

/** How many parts S3 takes. */
const mostParts = 10_000;

/** Writes a blob as BlobStore.write says; errors of the SDK are thrown as they are. Memory: about 4 MiB. */
export async function writeBlob(
  s3: S3Connection,
  objectKey: string,
  content: ExpectedContent,
  body: Readable,
  signal: AbortSignal,
): Promise<void> {
  signal.throwIfAborted();
  const checked = new CheckedBody(content, body, signal);
  const write = { s3, objectKey, content, signal, cutter: new BodyCutter(checked) };
  try {
    await (content.size <= partBytes ? writeAtOnce(write) : writeInParts(write));
  } finally {
    checked.stop();
  }
}

/** How large the parts of a blob are, in bytes: as many as S3 takes, whole MiB. */
export function partSizeOf(size: number): number {
  return Math.max(partBytes, Math.ceil(size / mostParts / mebibyte) * mebibyte);
}

interface Upload {
  Bucket: string;
  Key: string;
  UploadId: string;
}

interface Write {
  s3: S3Connection;
  objectKey: string;
  content: ExpectedContent;
  signal: AbortSignal;
  cutter: BodyCutter;
}

/** Asked for when all bytes were found right; or their last ones leave only then. */
async function writeAtOnce(write: Write): Promise<void> {
  const { s3, content, signal, cutter } = write;
  if (content.size > gatheredBytes) {
    await sendBody(s3, cutter, content.size, signal, (body, abortSignal) => put(write, body, abortSignal));
    return;
  }
  const body = await gather(cutter);
  await shortCall(s3, (abortSignal) => put(write, body, abortSignal), signal);
}

/** One PUT, whose SHA-256 the server compares too. */
async function put(
  { s3, objectKey, content }: Write,
  body: Readable | Buffer,
  abortSignal: AbortSignal,
): Promise<void> {
  const sha256 = Buffer.from(content.sha256);
  const command = new s3.sdk.PutObjectCommand({
    ...at(s3, objectKey),
    Body: body,
    ContentLength: content.size,
    ContentType: 'application/octet-stream',
    // In place of the checksum that the SDK adds by itself for AWS, which would have to trail the body.
    ...(s3.isAws ? { ChecksumSHA256: sha256.toString('base64') } : {}),
  });
  command.middlewareStack.add(
    (next) => (args) => {
      if (hasHeaders(args.request)) args.request.headers['x-amz-content-sha256'] = sha256.toString('hex');
      return next(args);
    },
    { step: 'build', name: 'contentSha256' },
  );
  await s3.client.send(command, { abortSignal });
}

async function gather(cutter: BodyCutter): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for (let piece = await cutter.next(gatheredBytes); piece !== null; piece = await cutter.next(gatheredBytes)) {
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

/** Nothing is visible before all parts are put together, which is asked for when all bytes were found right. */
async function writeInParts(write: Write): Promise<void> {
  const { s3, objectKey, content, signal } = write;
  const { CreateMultipartUploadCommand, CompleteMultipartUploadCommand } = s3.sdk;
  const create = new CreateMultipartUploadCommand({
    ...at(s3, objectKey),
    ContentType: 'application/octet-stream',
    // What the SDK adds to each part for AWS, which has to be told before.
    ...(s3.isAws ? { ChecksumAlgorithm: 'CRC32' } : {}),
  });
  const { UploadId } = await shortCall(s3, (abortSignal) => s3.client.send(create, { abortSignal }), signal);
  if (!UploadId) throw unavailable('The backend gave no id for a multipart upload.');
  const upload = { ...at(s3, objectKey), UploadId };
  try {
    const parts = await sendParts(write, upload);
    const complete = new CompleteMultipartUploadCommand({ ...upload, MultipartUpload: { Parts: parts } });
    await withDeadline(s3.limits.completeMs, signal, (abortSignal) => s3.client.send(complete, { abortSignal }));
    await requireSize(s3, objectKey, content.size, signal);
  } catch (error) {
    await abortUpload(s3, upload).catch(() => undefined);
    throw error;
  }
}

async function sendParts(write: Write, upload: Upload): Promise<CompletedPart[]> {
  const { s3, content, signal, cutter } = write;
  const { UploadPartCommand } = s3.sdk;
  const size = partSizeOf(content.size);
  const parts: CompletedPart[] = [];
  for (let start = 0; start < content.size; start += size) {
    const PartNumber = parts.length + 1;
    const ContentLength = Math.min(size, content.size - start);
    const { ETag, ChecksumCRC32 } = await sendBody(s3, cutter, ContentLength, signal, (Body, abortSignal) =>
      s3.client.send(new UploadPartCommand({ ...upload, PartNumber, Body, ContentLength }), { abortSignal }),
    );
    parts.push({ PartNumber, ETag, ...(ChecksumCRC32 ? { ChecksumCRC32 } : {}) });
  }
  return parts;
}

/** Sends the next `length` bytes in one request. The request ends with what breaks the body, or when nothing moves. */
async function sendBody<R>(
  { limits }: S3Connection,
  cutter: BodyCutter,
  length: number,
  signal: AbortSignal,
  request: (body: OutgoingBody, signal: AbortSignal) => Promise<R>,
): Promise<R> {
  const over = new AbortController();
  const idle = new IdleLimit(limits.idleMs, AbortSignal.any([signal, over.signal]));
  const body = new OutgoingBody(cutter, length, () => idle.touch());
  // The SDK would wait on a request whose body broke.
  body.on('error', (error) => over.abort(error));
  try {
    return await request(body, idle.signal);
  } catch (error) {
    throw idle.signal.aborted ? idle.signal.reason : error;
  } finally {
    idle.stop();
    // An answer that came before the body was read to its end must not keep the connection.
    over.abort();
    body.destroy();
  }
}

/** Aborts a multipart upload; one that is gone is success. */
export async function abortUpload(s3: S3Connection, upload: Upload): Promise<void> {
  const { AbortMultipartUploadCommand, NoSuchUpload } = s3.sdk;
  await shortCall(s3, async (abortSignal) => {
    await s3.client.send(new AbortMultipartUploadCommand(upload), { abortSignal });
  }).catch((error: unknown) => {
    if (!(error instanceof NoSuchUpload)) throw error;
  });
}

/** Not every server that says that it put parts together did. */
async function requireSize(s3: S3Connection, objectKey: string, size: number, signal: AbortSignal): Promise<void> {
  const head = new s3.sdk.HeadObjectCommand(at(s3, objectKey));
  const found = await shortCall(s3, (abortSignal) => s3.client.send(head, { abortSignal }), signal);
  if (found.ContentLength !== size) throw unavailable('The backend put the parts of a blob together wrongly.');
}

function at(s3: S3Connection, objectKey: string): { Bucket: string; Key: string } {
  return { Bucket: s3.bucket, Key: objectKey };
}

function hasHeaders(request: unknown): request is { headers: Record<string, string> } {
  return typeof request === 'object' && request !== null && 'headers' in request;
}
