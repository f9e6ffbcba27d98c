import { query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import { CopyResult, VerifyResult } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { Kysely } from 'kysely';
import { Readable } from 'node:stream';
import { noBackend } from './backend-row.ts';
import type { Bandwidth } from './bandwidth.ts';
import type { OpenBackends } from './open-backend.ts';
import type { BlobStore } from './stores/blob-store.ts';
import type { Tables } from './tables.ts';
import { verifyBlob } from './verify-blob.ts';
import type { BlobClaim } from './verify-blob.ts';

/** How long ago a marker may have been seen, in ms, where many blobs are moved: a look for each would double the calls. */
export const markerFreshMs = 1_000;

interface Needs {
  /** For short reading. */
  reads: Kysely<Tables>;
  backends: Pick<OpenBackends, 'openFresh' | 'recheck'>;
  /** Held back by it. */
  bandwidth: Bandwidth;
}

/**
 * Copies a blob from one backend to another, where it becomes visible once all of it hashed right. What is wrong with the
 * source is the result; throws what the target failed with: `not_found`, `state_conflict` for a disabled one,
 * `insufficient_storage`, `unavailable`.
 */
export async function copyBlob(
  { reads, backends, bandwidth }: Needs,
  { from, to, blob }: { from: string; to: string; blob: BlobClaim },
  signal: AbortSignal,
): Promise<CopyResult> {
  await requireEnabled(reads, to);
  const store = await backends.openFresh(to, markerFreshMs);
  const source = await nullIfFailed(backends.openFresh(from, markerFreshMs), signal);
  if (!source) return CopyResult.SOURCE_UNAVAILABLE;
  const copied = await copyOnServer(source, store, blob, bandwidth, signal);
  if (copied !== null) return believed(backends, from, copied);
  const body = await read(source, blob, signal);
  if (!(body instanceof Readable)) return believed(backends, from, body);
  return copyContent(body, store, blob, bandwidth, signal);
}

async function requireEnabled(reads: Kysely<Tables>, id: string): Promise<void> {
  const target = isId(id)
    ? await query(() => reads.selectFrom('registry.backends').select('enabled').where('id', '=', id).executeTakeFirst())
    : undefined;
  if (!target) noBackend();
  if (!target.enabled) throw new AppError('state_conflict', 'The backend to copy to is disabled.');
}

/** Looks at the marker before missing means missing. */
async function believed(backends: Needs['backends'], from: string, result: CopyResult): Promise<CopyResult> {
  if (result !== CopyResult.SOURCE_MISSING) return result;
  return backends.recheck(from).then(
    () => result,
    (error: unknown) => {
      if (error instanceof AppError) return CopyResult.SOURCE_UNAVAILABLE;
      throw error;
    },
  );
}

/** The content of the source, or why it can't be copied. */
async function read(source: BlobStore, { key, size }: BlobClaim, signal: AbortSignal): Promise<Readable | CopyResult> {
  try {
    return await source.read(key, { start: 0, end: size, of: size }, signal);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    if (error.code === 'checksum_mismatch') return CopyResult.SOURCE_CORRUPT;
    return error.code === 'not_found' ? CopyResult.SOURCE_MISSING : CopyResult.SOURCE_UNAVAILABLE;
  }
}

/**
 * Has the server of both copy, once what it will copy was read here and hashed right. Null where it can't, or will not: the
 * content goes through here then.
 */
async function copyOnServer(
  source: BlobStore,
  target: BlobStore,
  blob: BlobClaim,
  bandwidth: Bandwidth,
  signal: AbortSignal,
): Promise<CopyResult | null> {
  const copy = await nullIfFailed(target.serverCopy(source, blob.key), signal);
  if (!copy) return null;
  const verdict = await nullIfFailed(verifyBlob(source, blob, bandwidth, signal), signal);
  if (verdict !== VerifyResult.GOOD) return verdict === null ? CopyResult.SOURCE_UNAVAILABLE : badSource(verdict);
  const made = copy.make(signal).then(() => CopyResult.COPIED);
  return nullIfFailed<CopyResult>(made, signal);
}

function badSource(verdict: VerifyResult): CopyResult {
  return verdict === VerifyResult.CORRUPT ? CopyResult.SOURCE_CORRUPT : CopyResult.SOURCE_MISSING;
}

/** Null for what a store failed with; what the caller cancelled is thrown. */
async function nullIfFailed<R>(work: Promise<R>, signal: AbortSignal): Promise<R | null> {
  return work.catch((error: unknown) => {
    if (signal.aborted || !(error instanceof AppError)) throw error;
    return null;
  });
}

async function copyContent(
  body: Readable,
  target: BlobStore,
  { key, size, sha256 }: BlobClaim,
  bandwidth: Bandwidth,
  signal: AbortSignal,
): Promise<CopyResult> {
  const fault: { error: Error | null } = { error: null };
  body.on('error', (error) => (fault.error = error));
  const limited = bandwidth.limit(body, signal);
  try {
    await target.write(key, { size, sha256 }, limited, signal);
    return CopyResult.COPIED;
  } catch (error) {
    if (signal.aborted || !(error instanceof AppError)) throw error;
    if (fault.error !== null) return CopyResult.SOURCE_UNAVAILABLE;
    if (error.code === 'checksum_mismatch' || error.code === 'upload_incomplete') return CopyResult.SOURCE_CORRUPT;
    throw error;
  } finally {
    limited.destroy();
    body.destroy();
  }
}
