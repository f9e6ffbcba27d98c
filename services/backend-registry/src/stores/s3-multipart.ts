import type { CompletedPart, Part } from '@aws-sdk/client-s3';
import { unavailable } from '@stowage/common/errors';
import { noSignal, shortCall, withDeadline } from './s3-calls.ts';
import type { S3Connection } from './s3-connection.ts';

export const mebibyte = 1024 * 1024;

/** What putting parts together may take longer for each of them, in milliseconds. */
const completePartMs = 100;

/** How many parts S3 takes. */
export const mostParts = 10_000;

/** A multipart upload under way. */
export interface Upload {
  Bucket: string;
  Key: string;
  UploadId: string;
}

/** What must be there, or not, for an object to be written: as conditional requests say. */
export interface Condition {
  IfMatch?: string;
  IfNoneMatch?: string;
}

/** Begins a multipart upload. */
export async function createUpload(s3: S3Connection, objectKey: string, signal: AbortSignal): Promise<Upload> {
  const place = { Bucket: s3.bucket, Key: objectKey };
  const command = new s3.sdk.CreateMultipartUploadCommand({
    ...place,
    ContentType: 'application/octet-stream',
    // What the SDK adds to each part for AWS, which has to be told before.
    ...(s3.isAws ? { ChecksumAlgorithm: 'CRC32' } : {}),
  });
  const { UploadId } = await shortCall(s3, (abortSignal) => s3.client.send(command, { abortSignal }), signal);
  if (!UploadId) throw unavailable('The backend gave no id for a multipart upload.');
  return { ...place, UploadId };
}

/** What has to be said of a part when all are put together. */
export function partOf(
  PartNumber: number,
  { ETag, ChecksumCRC32 }: { ETag?: string | undefined; ChecksumCRC32?: string | undefined },
): CompletedPart {
  return { PartNumber, ETag, ...(ChecksumCRC32 ? { ChecksumCRC32 } : {}) };
}

/** Puts the parts together, and looks at what came of it: `size` bytes. */
export async function completeUpload(
  s3: S3Connection,
  upload: Upload,
  { parts, size, condition = {} }: { parts: CompletedPart[]; size: number; condition?: Condition },
  signal: AbortSignal,
): Promise<void> {
  const { CompleteMultipartUploadCommand } = s3.sdk;
  const complete = new CompleteMultipartUploadCommand({ ...upload, ...condition, MultipartUpload: { Parts: parts } });
  const limitMs = s3.limits.completeMs + parts.length * completePartMs;
  await withDeadline(limitMs, signal, (abortSignal) => s3.client.send(complete, { abortSignal }));
  await requireSize(s3, upload.Key, size, signal);
}

/**
 * Throws `unavailable` unless an object has `size` bytes: not every server that says that it kept it all did. One that is not
 * `etag` any more was replaced by another writer.
 */
export async function requireSize(
  s3: S3Connection,
  objectKey: string,
  size: number,
  signal: AbortSignal,
  etag?: string,
): Promise<void> {
  const head = new s3.sdk.HeadObjectCommand({ Bucket: s3.bucket, Key: objectKey });
  const found = await shortCall(s3, (abortSignal) => s3.client.send(head, { abortSignal }), signal);
  if (etag && found.ETag && found.ETag !== etag) return;
  if (found.ContentLength !== size) throw unavailable('The backend did not keep all that was sent to it.');
}

/** The youngest multipart upload of an object that nobody completed; null when there is none. */
export async function unfinishedUpload(s3: S3Connection, objectKey: string): Promise<Upload | null> {
  const command = new s3.sdk.ListMultipartUploadsCommand({ Bucket: s3.bucket, Prefix: objectKey });
  const { Uploads = [] } = await shortCall(s3, (abortSignal) => s3.client.send(command, { abortSignal }));
  const begun = Uploads.filter(({ Key }) => Key === objectKey).sort(
    (one, other) => (other.Initiated?.getTime() ?? 0) - (one.Initiated?.getTime() ?? 0),
  );
  const UploadId = begun[0]?.UploadId;
  return UploadId ? { Bucket: s3.bucket, Key: objectKey, UploadId } : null;
}

/** The parts that the server has, by their numbers; none of an upload that is gone. */
export async function uploadedParts(s3: S3Connection, upload: Upload): Promise<Part[]> {
  const found: Part[] = [];
  let marker: string | undefined;
  do {
    const command = new s3.sdk.ListPartsCommand({ ...upload, ...(marker ? { PartNumberMarker: marker } : {}) });
    const page = await shortCall(s3, (abortSignal) => s3.client.send(command, { abortSignal })).catch(
      (error: unknown) => {
        if (error instanceof s3.sdk.NoSuchUpload) return null;
        throw error;
      },
    );
    if (!page) return [];
    found.push(...(page.Parts ?? []));
    marker = page.IsTruncated ? page.NextPartNumberMarker : undefined;
    const last = found.at(-1)?.PartNumber;
    if (page.IsTruncated && (marker !== String(last) || found.length > mostParts)) {
      throw unavailable('The backend does not go on with its listing.');
    }
  } while (marker !== undefined);
  return found;
}

/** Aborts a multipart upload; one that is gone is success. Follows no signal: it is done when others gave up. */
export async function abortUpload(s3: S3Connection, upload: Upload): Promise<void> {
  const { AbortMultipartUploadCommand, NoSuchUpload } = s3.sdk;
  await shortCall(
    s3,
    (abortSignal) => s3.client.send(new AbortMultipartUploadCommand(upload), { abortSignal }),
    noSignal,
  ).catch((error: unknown) => {
    if (!(error instanceof NoSuchUpload)) throw error;
  });
}

/** A middleware that has the server compare the SHA-256 of a body, which the SDK then need not compute. Add it with `signed`. */
export function sha256Header(sha256: Uint8Array) {
  const hex = Buffer.from(sha256).toString('hex');
  return <Args extends { request: unknown }, Result>(next: (args: Args) => Promise<Result>) =>
    (args: Args): Promise<Result> => {
      if (hasHeaders(args.request)) args.request.headers['x-amz-content-sha256'] = hex;
      return next(args);
    };
}

/** Where a header must be set to be signed. */
export const signed = { step: 'build', name: 'contentSha256' } as const;

function hasHeaders(request: unknown): request is { headers: Record<string, string> } {
  return typeof request === 'object' && request !== null && 'headers' in request;
}
