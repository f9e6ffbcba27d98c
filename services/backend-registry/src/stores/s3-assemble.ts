import type { CompletedPart } from '@aws-sdk/client-s3';
import { unavailable } from '@stowage/common/errors';
import { noSignal, withDeadline } from './s3-calls.ts';
import type { S3Connection } from './s3-connection.ts';
import { abortUpload, completeUpload, createUpload, mebibyte, partOf } from './s3-multipart.ts';
import type { Upload } from './s3-multipart.ts';
import type { Segment } from './s3-segments.ts';

/** No part but the last may be smaller, in bytes. */
export const leastPart = 5 * mebibyte;

/** How much the server copies in one call, in bytes. */
const usualCopyBytes = 1024 * mebibyte;

/** How many copies are under way at once. */
const copiesAtOnce = 4;

/** Has the server make one object of segments, in their order, durably and at once. It replaces one that is there. */
export async function assemble(
  s3: S3Connection,
  segments: readonly Segment[],
  objectKey: string,
  copyBytes: number = usualCopyBytes,
): Promise<void> {
  const [first, ...more] = segments;
  if (!first) await putEmpty(s3, objectKey);
  else if (more.length === 0 && first.size <= copyBytes) await copyWhole(s3, first, objectKey);
  else await copyInParts(s3, segments, objectKey, copyBytes);
}

async function putEmpty(s3: S3Connection, objectKey: string): Promise<void> {
  const command = new s3.sdk.PutObjectCommand({ Bucket: s3.bucket, Key: objectKey, Body: '' });
  await copyCall(s3, (abortSignal) => s3.client.send(command, { abortSignal }));
}

async function copyWhole(s3: S3Connection, segment: Segment, objectKey: string): Promise<void> {
  const command = new s3.sdk.CopyObjectCommand({
    Bucket: s3.bucket,
    Key: objectKey,
    CopySource: sourceOf(s3, segment),
    CopySourceIfMatch: segment.etag,
  });
  await copyCall(s3, (abortSignal) => s3.client.send(command, { abortSignal }));
}

async function copyInParts(
  s3: S3Connection,
  segments: readonly Segment[],
  objectKey: string,
  copyBytes: number,
): Promise<void> {
  const copies = segments.flatMap((segment) => rangesOf(segment, copyBytes));
  if (copies.slice(0, -1).some(({ start, end }) => end - start < leastPart)) {
    throw unavailable('The pieces of this upload on the backend are too small.');
  }
  const upload = await createUpload(s3, objectKey, noSignal);
  try {
    const parts: CompletedPart[] = [];
    for (let at = 0; at < copies.length; at += copiesAtOnce) {
      const some = copies.slice(at, at + copiesAtOnce);
      parts.push(...(await Promise.all(some.map((copy, index) => copyPart(s3, upload, copy, at + index + 1)))));
    }
    const size = segments.reduce((sum, segment) => sum + segment.size, 0);
    await completeUpload(s3, upload, { parts, size }, noSignal);
  } catch (error) {
    await abortUpload(s3, upload).catch(() => undefined);
    throw error;
  }
}

interface Copy {
  segment: Segment;
  start: number;
  end: number;
}

/** Cuts a segment into ranges that one call copies, none of them too small for a part unless the segment is. */
function rangesOf(segment: Segment, copyBytes: number): Copy[] {
  const count = Math.ceil(segment.size / copyBytes);
  const edge = (index: number): number => Math.floor((segment.size * index) / count);
  return Array.from({ length: count }, (_, index) => ({ segment, start: edge(index), end: edge(index + 1) }));
}

async function copyPart(
  s3: S3Connection,
  upload: Upload,
  { segment, start, end }: Copy,
  number: number,
): Promise<CompletedPart> {
  const command = new s3.sdk.UploadPartCopyCommand({
    ...upload,
    PartNumber: number,
    CopySource: sourceOf(s3, segment),
    CopySourceIfMatch: segment.etag,
    // A range of all of it is refused for a small one.
    ...(end - start < segment.size ? { CopySourceRange: `bytes=${start}-${end - 1}` } : {}),
  });
  const { CopyPartResult } = await copyCall(s3, (abortSignal) => s3.client.send(command, { abortSignal }));
  if (!CopyPartResult) throw unavailable('The backend does not say what it copied.');
  return partOf(number, CopyPartResult);
}

function copyCall<R>(s3: S3Connection, call: (signal: AbortSignal) => Promise<R>): Promise<R> {
  return withDeadline(s3.limits.completeMs, noSignal, call);
}

function sourceOf(s3: S3Connection, { objectKey }: Segment): string {
  return `${s3.bucket}/${objectKey.split('/').map(encodeURIComponent).join('/')}`;
}
