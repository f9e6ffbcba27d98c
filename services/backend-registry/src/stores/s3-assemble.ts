import { setTimeout } from 'node:timers/promises';
import type { CompletedPart } from '@aws-sdk/client-s3';
import type { AppError } from '@stowage/common/errors';
import { unavailable } from '@stowage/common/errors';
import { noSignal, withDeadline } from './s3-calls.ts';
import type { S3Connection } from './s3-connection.ts';
import { s3Error } from './s3-errors.ts';
import {
  abortUpload,
  completeUpload,
  createUpload,
  mebibyte,
  partOf,
  requireSize,
  unfinishedUpload,
  uploadedParts,
} from './s3-multipart.ts';
import type { Upload } from './s3-multipart.ts';
import { isRefusal } from './store-refusal.ts';

/** No part but the last may be smaller, in bytes. */
export const leastPart = 5 * mebibyte;

/** How much the server copies in one call at least, in bytes: little enough for a slow one to do in time. */
const leastCopyBytes = 256 * mebibyte;

/** So many copies, and one more for each segment, are fewer than the parts that S3 takes. */
const usualMostCopies = 3_000;

/** How many copies are under way at once. */
const copiesAtOnce = 4;

/** One copy in thousands that fails must not cost the others. */
const tries = 4;
const pauseMs = 200;

const saysNothing = 'The backend does not say what it copied.';

/** An object, or a version of it, to copy from. */
export interface Piece {
  /** That of the target where it is left out. */
  bucket?: string;
  objectKey: string;
  size: number;
  etag: string;
}

interface Options {
  /** How much is copied in one call; as it is best for the size where it is left out. */
  copyBytes?: number;
  /** What fails is left as it stands, and gone on with the next time: the same pieces must mean the same bytes then. */
  resume: boolean;
  signal?: AbortSignal;
}

/** Has the server make one object of pieces, in their order, durably and at once. It replaces one that is there. */
export async function assemble(
  s3: S3Connection,
  pieces: readonly Piece[],
  objectKey: string,
  { copyBytes, resume, signal = noSignal }: Options,
): Promise<void> {
  const size = pieces.reduce((sum, piece) => sum + piece.size, 0);
  const atOnce = copyBytes ?? Math.max(leastCopyBytes, Math.ceil(size / usualMostCopies));
  const [first, ...more] = pieces;
  if (!first) await putEmpty(s3, objectKey);
  else if (more.length === 0 && first.size <= atOnce) await copyWhole(s3, first, objectKey, signal);
  else await copyInParts(s3, { pieces, size, copyBytes: atOnce, objectKey, resume, signal });
}

async function putEmpty(s3: S3Connection, objectKey: string): Promise<void> {
  const command = new s3.sdk.PutObjectCommand({ Bucket: s3.bucket, Key: objectKey, Body: '' });
  await copyCall(s3, noSignal, (abortSignal) => s3.client.send(command, { abortSignal }));
}

async function copyWhole(s3: S3Connection, piece: Piece, objectKey: string, signal: AbortSignal): Promise<void> {
  const command = new s3.sdk.CopyObjectCommand({
    Bucket: s3.bucket,
    Key: objectKey,
    CopySource: sourceOf(s3, piece),
    CopySourceIfMatch: piece.etag,
  });
  const { CopyObjectResult } = await copyCall(s3, signal, (abortSignal) => s3.client.send(command, { abortSignal }));
  if (!CopyObjectResult?.ETag) throw unavailable(saysNothing);
  await requireSize(s3, objectKey, piece.size, signal);
}

interface Job {
  pieces: readonly Piece[];
  /** Of all together, in bytes. */
  size: number;
  copyBytes: number;
  objectKey: string;
  resume: boolean;
  signal: AbortSignal;
}

async function copyInParts(s3: S3Connection, job: Job): Promise<void> {
  const { objectKey, size, resume, signal } = job;
  const copies = job.pieces.flatMap((piece) => rangesOf(piece, job.copyBytes));
  if (copies.slice(0, -1).some(({ start, end }) => end - start < leastPart)) {
    throw unavailable('The pieces of this upload on the backend are too small.');
  }
  const begun = resume ? await unfinishedUpload(s3, objectKey) : null;
  const upload = begun ?? (await createUpload(s3, objectKey, signal));
  try {
    const parts = begun ? await partsDone(s3, begun, copies) : [];
    for (let at = parts.length; at < copies.length; at += copiesAtOnce) {
      const some = copies.slice(at, at + copiesAtOnce);
      parts.push(...(await Promise.all(some.map((copy, index) => copyPart(s3, upload, copy, at + index + 1, signal)))));
    }
    await completeUpload(s3, upload, { parts, size }, signal);
  } catch (error) {
    if (!resume) await abortUpload(s3, upload).catch(() => undefined);
    throw error;
  }
}

/** What an earlier try has copied: as many parts from the first one on as are cut as they would be now. */
async function partsDone(s3: S3Connection, upload: Upload, copies: readonly Copy[]): Promise<CompletedPart[]> {
  const done: CompletedPart[] = [];
  for (const part of await uploadedParts(s3, upload)) {
    const copy = copies[done.length];
    if (!copy || part.PartNumber !== done.length + 1 || part.Size !== copy.end - copy.start) break;
    done.push(partOf(part.PartNumber, part));
  }
  return done;
}

interface Copy {
  piece: Piece;
  start: number;
  end: number;
}

/** Cuts a piece into ranges that one call copies, none of them too small for a part unless the piece is. */
function rangesOf(piece: Piece, copyBytes: number): Copy[] {
  const count = Math.ceil(piece.size / copyBytes);
  const edge = (index: number): number => Math.floor((piece.size * index) / count);
  return Array.from({ length: count }, (_, index) => ({ piece, start: edge(index), end: edge(index + 1) }));
}

async function copyPart(
  s3: S3Connection,
  upload: Upload,
  { piece, start, end }: Copy,
  number: number,
  signal: AbortSignal,
): Promise<CompletedPart> {
  const command = new s3.sdk.UploadPartCopyCommand({
    ...upload,
    PartNumber: number,
    CopySource: sourceOf(s3, piece),
    CopySourceIfMatch: piece.etag,
    // A range of all of it is refused for a small one.
    ...(end - start < piece.size ? { CopySourceRange: `bytes=${start}-${end - 1}` } : {}),
  });
  const { CopyPartResult } = await copyCall(s3, signal, (abortSignal) => s3.client.send(command, { abortSignal }));
  if (!CopyPartResult?.ETag) throw unavailable(saysNothing);
  return partOf(number, CopyPartResult);
}

/** Copying again has the same effect, so what may pass is tried again here: whoever asked has to begin anew otherwise. */
async function copyCall<R>(
  s3: S3Connection,
  follows: AbortSignal,
  call: (signal: AbortSignal) => Promise<R>,
): Promise<R> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await withDeadline(s3.limits.completeMs, follows, call);
    } catch (error) {
      const told = s3Error(error);
      if (attempt === tries || follows.aborted || !mayPass(told)) throw error;
      await setTimeout(pauseMs * attempt, undefined, { signal: follows }).catch(() => {
        throw error;
      });
    }
  }
}

/** Whether it makes sense to try again. */
export function mayPass(error: AppError): boolean {
  return error.code === 'unavailable' && !isRefusal(error);
}

function sourceOf(s3: S3Connection, { bucket = s3.bucket, objectKey }: Piece): string {
  return `${bucket}/${objectKey.split('/').map(encodeURIComponent).join('/')}`;
}
