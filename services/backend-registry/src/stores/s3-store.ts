import { Readable } from 'node:stream';
import { AppError, unavailable } from '@stowage/common/errors';
import type {
  Append,
  AppendableStore,
  BlobPage,
  BlobStore,
  ByteRange,
  ExpectedContent,
  ServerCopy,
  StagedContent,
  StagedPage,
} from './blob-store.ts';
import { usualLimits } from './idle-limit.ts';
import type { StoreLimits } from './idle-limit.ts';
import { checkedId, parseBlobKey, placeOfKey } from './keys.ts';
import { noSignal, shortCall } from './s3-calls.ts';
import type { S3Config, StoreAgents } from './s3-config.ts';
import { connectS3 } from './s3-connection.ts';
import type { S3Connection } from './s3-connection.ts';
import { haveOneServer, pinCopy } from './s3-copy.ts';
import { hasStatus, isMissing, s3Error } from './s3-errors.ts';
import { listBlobs, listStaged } from './s3-listing.ts';
import { claimMarker, readMarker } from './s3-marker.ts';
import { readRange } from './s3-read.ts';
import { S3Staging } from './s3-staging.ts';
import { sweepUploads } from './s3-sweep.ts';
import { writeBlob } from './s3-write.ts';
import { requireWholeSize } from './whole-size.ts';

/**
 * Blobs as objects `<prefix>/blobs/<xx>/<blob id>` of a bucket, kept exports beside them. In a bucket that keeps versions a deleted blob lives on as
 * an old version, until a rule of the bucket removes it.
 */
export class S3Store implements AppendableStore {
  readonly #config: S3Config;
  readonly #s3: S3Connection;
  readonly #staging: S3Staging;

  private constructor(config: S3Config, s3: S3Connection) {
    this.#config = config;
    this.#s3 = s3;
    this.#staging = new S3Staging(s3);
  }

  /** The store in a bucket, which must exist. Connects to nothing yet. */
  static async open(config: S3Config, agents: StoreAgents, limits: StoreLimits = usualLimits): Promise<S3Store> {
    return new S3Store(config, await connectS3(config, agents, limits));
  }

  async identity(): Promise<string | null> {
    return guarded(() => readMarker(this.#s3));
  }

  async claim(backendId: string): Promise<void> {
    await guarded(() => claimMarker(this.#s3, backendId));
  }

  async prepare(): Promise<void> {
    // A bucket needs no folders; half-done uploads are left to sweep.
  }

  async read(key: string, range: ByteRange, signal: AbortSignal): Promise<Readable> {
    const objectKey = this.#objectKey(key);
    if (range.end > range.start) return guarded(() => readRange(this.#s3, objectKey, range, signal));
    const found = await this.stat(key);
    if (!found || found.size < range.end) throw new AppError('not_found', 'There is no such blob on this backend.');
    requireWholeSize(found.size, range);
    return Readable.from([]);
  }

  async stat(key: string): Promise<{ size: number } | null> {
    const objectKey = this.#objectKey(key);
    return guarded(async () => {
      const size = await this.#sizeOf(objectKey).catch(async (error: unknown) => {
        // The answer has no body to tell what is missing, or why it was refused; that for the marker has.
        if (hasStatus(error, 401, 403, 404)) await readMarker(this.#s3);
        return nullIfMissing(error);
      });
      return size === null ? null : { size };
    });
  }

  async delete(key: string): Promise<void> {
    const command = new this.#s3.sdk.DeleteObjectCommand({ Bucket: this.#s3.bucket, Key: this.#objectKey(key) });
    await guarded(async () => {
      await shortCall(this.#s3, (abortSignal) => this.#s3.client.send(command, { abortSignal })).catch(nullIfMissing);
    });
  }

  async write(key: string, content: ExpectedContent, body: Readable, signal: AbortSignal): Promise<void> {
    const objectKey = this.#objectKey(key);
    await guarded(() => writeBlob(this.#s3, objectKey, content, body, signal), signal);
  }

  async serverCopy(source: BlobStore, key: string): Promise<ServerCopy | null> {
    const target = this.#objectKey(key);
    if (!(source instanceof S3Store) || !haveOneServer(source.#config, this.#config)) return null;
    const copy = await guarded(() => pinCopy(source.#s3, source.#objectKey(key), this.#s3, target));
    return copy && { make: (signal) => guarded(() => copy.make(signal), signal) };
  }

  async list(cursor: string | null, limit: number): Promise<BlobPage> {
    return guarded(() => listBlobs(this.#s3, cursor, limit));
  }

  async sweep(before: Date): Promise<number> {
    return guarded(() => sweepUploads(this.#s3, before));
  }

  async #sizeOf(objectKey: string): Promise<number> {
    const command = new this.#s3.sdk.HeadObjectCommand({ Bucket: this.#s3.bucket, Key: objectKey });
    const found = await shortCall(this.#s3, (abortSignal) => this.#s3.client.send(command, { abortSignal }));
    if (found.ContentLength === undefined) throw unavailable('The backend does not say how large a blob is.');
    return found.ContentLength;
  }

  async createStaged(stagedId: string): Promise<void> {
    checkedId(stagedId);
    await guarded(() => this.#staging.create(stagedId));
  }

  async stagedOffset(stagedId: string): Promise<number | null> {
    checkedId(stagedId);
    return guarded(() => this.#staging.offset(stagedId));
  }

  async append(append: Append, body: Readable, signal: AbortSignal): Promise<number> {
    checkedId(append.stagedId);
    return guarded(() => this.#staging.append(append, body, signal), signal);
  }

  async seal(
    stagedId: string,
    key: string,
    check: (content: StagedContent, signal: AbortSignal) => Promise<void>,
  ): Promise<boolean> {
    parseBlobKey(key);
    const objectKey = this.#objectKey(key);
    checkedId(stagedId);
    return guarded(() => this.#staging.seal(stagedId, objectKey, check));
  }

  async discard(stagedId: string): Promise<void> {
    checkedId(stagedId);
    await guarded(() => this.#staging.discard(stagedId));
  }

  async listStaged(cursor: string | null, limit: number): Promise<StagedPage> {
    return guarded(() => listStaged(this.#s3, cursor, limit));
  }

  /** A bucket does not say what fits; a full one refuses. */
  async freeBytes(): Promise<number> {
    return Number.MAX_SAFE_INTEGER;
  }

  #objectKey(key: string): string {
    placeOfKey(key);
    return `${this.#s3.prefix}${key}`;
  }
}

function nullIfMissing(error: unknown): null {
  if (isMissing(error)) return null;
  throw error;
}

/** Runs `work`; what it throws comes out as s3Error makes it, or as unavailable where `signal` was aborted. */
async function guarded<R>(work: () => Promise<R>, signal: AbortSignal = noSignal): Promise<R> {
  try {
    return await work();
  } catch (error) {
    if (!signal.aborted || error instanceof AppError) throw s3Error(error);
    const reason: unknown = signal.reason;
    throw reason instanceof AppError ? reason : unavailable('The request was cancelled.');
  }
}
