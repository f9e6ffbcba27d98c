import type { Readable } from 'node:stream';
import type { CompletedPart } from '@aws-sdk/client-s3';
import type { ExpectedContent } from './blob-store.ts';
import { CheckedBody } from './checked-body.ts';
import { IdleLimit } from './idle-limit.ts';
import { BodyCutter, OutgoingBody } from './outgoing-body.ts';
import { shortCall } from './s3-calls.ts';
import type { S3Connection } from './s3-connection.ts';
import {
  abortUpload,
  completeUpload,
  createUpload,
  mebibyte,
  mostParts,
  partOf,
  requireSize,
  sha256Header,
  signed,
} from './s3-multipart.ts';
import type { Upload } from './s3-multipart.ts';

/** Up to this a blob is one PUT, in bytes; no part is smaller. A part is streamed, so its size costs no memory. */
const partBytes = 64 * mebibyte;

/** Up to this a blob is gathered before it is sent, in bytes: a server may answer before it saw the end of a short body. */
const gatheredBytes = mebibyte;

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
  let etag: string | undefined;
  if (content.size > gatheredBytes) {
    etag = await sendBody(s3, cutter, content.size, signal, (body, abortSignal) => put(write, body, abortSignal));
  } else {
    const body = await gather(cutter);
    etag = await shortCall(s3, (abortSignal) => put(write, body, abortSignal), signal);
  }
  await requireSize(s3, write.objectKey, content.size, signal, etag);
}

/** One PUT, whose SHA-256 the server compares too. Gives its ETag. */
async function put(
  { s3, objectKey, content }: Write,
  body: Readable | Buffer,
  abortSignal: AbortSignal,
): Promise<string | undefined> {
  const sha256 = Buffer.from(content.sha256);
  const command = new s3.sdk.PutObjectCommand({
    ...at(s3, objectKey),
    Body: body,
    ContentLength: content.size,
    ContentType: 'application/octet-stream',
    // In place of the checksum that the SDK adds by itself for AWS, which would have to trail the body.
    ...(s3.isAws ? { ChecksumSHA256: sha256.toString('base64') } : {}),
  });
  command.middlewareStack.add(sha256Header(sha256), signed);
  return (await s3.client.send(command, { abortSignal })).ETag;
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
  const upload = await createUpload(s3, objectKey, signal);
  try {
    const parts = await sendParts(write, upload);
    await completeUpload(s3, upload, { parts, size: content.size }, signal);
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
    const sent = await sendBody(s3, cutter, ContentLength, signal, (Body, abortSignal) =>
      s3.client.send(new UploadPartCommand({ ...upload, PartNumber, Body, ContentLength }), { abortSignal }),
    );
    parts.push(partOf(PartNumber, sent));
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

function at(s3: S3Connection, objectKey: string): { Bucket: string; Key: string } {
  return { Bucket: s3.bucket, Key: objectKey };
}
