import { createHash } from 'node:crypto';
import type { CompletedPart } from '@aws-sdk/client-s3';
import { free } from '@stowage/common/bytes/free';
import { AppError } from '@stowage/common/errors';
import { noSignal, shortCall } from './s3-calls.ts';
import type { S3Connection } from './s3-connection.ts';
import { hasStatus } from './s3-errors.ts';
import {
  abortUpload,
  completeUpload,
  createUpload,
  mebibyte,
  mostParts,
  partOf,
  sha256Header,
  signed,
} from './s3-multipart.ts';
import type { Condition, Upload } from './s3-multipart.ts';
import { lockedError } from './staged-claims.ts';

/** How much is gathered before it is sent, in bytes. The one thing that an append keeps in memory. */
const partBytes = 8 * mebibyte;

/** How much room there is for it at first, in bytes. */
const firstBytes = 64 * 1024;

/** Into which object a writer puts its bytes. */
export interface SegmentPlace {
  objectKey: string;
  /** What it is written over, if anything: nobody else's bytes. */
  condition: Condition;
}

/**
 * Writes one segment, of a length that nobody knows before: little as one PUT, more as a multipart upload. It counts when
 * `close` has resolved, and as a whole; before that nothing of it does. Calls follow no signal, as what arrived must be
 * kept when its sender is gone.
 */
export class SegmentWriter {
  readonly #s3: S3Connection;
  readonly #place: SegmentPlace;
  /** Grows, as most bodies are small; the part that is being gathered. */
  #buffer = Buffer.allocUnsafeSlow(firstBytes);
  #hash = createHash('sha256');
  #filled = 0;
  #size = 0;
  #upload: Upload | null = null;
  #parts: CompletedPart[] = [];

  constructor(s3: S3Connection, place: SegmentPlace) {
    this.#s3 = s3;
    this.#place = place;
  }

  /** In bytes. */
  get size(): number {
    return this.#size;
  }

  /** Copies a piece into the segment; what fills a part is sent. */
  async add(piece: Buffer): Promise<void> {
    for (let at = 0; at < piece.length;) {
      // Not before there is more: the last part is sent by close, which must have something to send.
      if (this.#filled === partBytes) await this.#sendPart();
      const part = piece.subarray(at, at + partBytes - this.#filled);
      this.#makeRoom(this.#filled + part.length);
      part.copy(this.#buffer, this.#filled);
      this.#hash.update(part);
      at += part.length;
      this.#filled += part.length;
      this.#size += part.length;
    }
  }

  #makeRoom(needed: number): void {
    if (needed <= this.#buffer.length) return;
    const room = Math.min(partBytes, Math.max(needed, 2 * this.#buffer.length));
    const larger = Buffer.allocUnsafeSlow(room);
    this.#buffer.copy(larger, 0, 0, this.#filled);
    free(this.#buffer);
    this.#buffer = larger;
  }

  /** Makes it count, durably. Throws `locked` when somebody else wrote in its place meanwhile. */
  async close(): Promise<void> {
    try {
      if (this.#upload) await this.#complete();
      else await this.#put();
    } catch (error) {
      await this.abandon();
      throw error;
    }
  }

  /** Gives up what did not count yet. */
  async abandon(): Promise<void> {
    const upload = this.#upload;
    this.#upload = null;
    if (upload) await abortUpload(this.#s3, upload).catch(() => undefined);
  }

  async #put(): Promise<void> {
    const { client, sdk, bucket } = this.#s3;
    const sha256 = this.#takeSha256();
    await this.#onCondition(async (condition) => {
      const place = { Bucket: bucket, Key: this.#place.objectKey, ContentType: 'application/octet-stream' };
      const command = new sdk.PutObjectCommand({ ...place, ...condition, Body: this.#gathered() });
      command.middlewareStack.add(sha256Header(sha256), signed);
      await shortCall(this.#s3, (abortSignal) => client.send(command, { abortSignal }));
    });
  }

  async #sendPart(): Promise<void> {
    this.#upload ??= await createUpload(this.#s3, this.#place.objectKey, noSignal);
    const PartNumber = this.#parts.length + 1;
    if (PartNumber > mostParts) throw new AppError('payload_too_large', 'A body with a checksum can not be that long.');
    const command = new this.#s3.sdk.UploadPartCommand({ ...this.#upload, PartNumber, Body: this.#gathered() });
    command.middlewareStack.add(sha256Header(this.#takeSha256()), signed);
    const sent = await shortCall(this.#s3, (abortSignal) => this.#s3.client.send(command, { abortSignal }));
    this.#parts.push(partOf(PartNumber, sent));
    this.#filled = 0;
  }

  async #complete(): Promise<void> {
    await this.#sendPart();
    const upload = this.#upload;
    if (!upload) return;
    await this.#onCondition((condition) =>
      completeUpload(this.#s3, upload, { parts: this.#parts, size: this.#size, condition }, noSignal),
    );
    this.#upload = null;
  }

  async #onCondition(write: (condition: Condition) => Promise<void>): Promise<void> {
    await write(this.#place.condition).catch((error: unknown) => {
      if (hasStatus(error, 409, 412)) throw lockedError();
      // This server knows no conditions: what keeps writers apart are the claims of this process.
      if (hasStatus(error, 501)) return write({});
      throw error;
    });
  }

  #gathered(): Buffer {
    return this.#buffer.subarray(0, this.#filled);
  }

  /** Of what is gathered; the next one begins anew. */
  #takeSha256(): Buffer {
    const digest = this.#hash.digest();
    this.#hash = createHash('sha256');
    return digest;
  }
}
