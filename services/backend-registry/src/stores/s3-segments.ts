import { unavailable } from '@stowage/common/errors';
import { noSignal, shortCall } from './s3-calls.ts';
import type { S3Connection } from './s3-connection.ts';
import { isMissing } from './s3-errors.ts';
import { listBelow, stagingFolder } from './s3-listing.ts';

/** The object that says that there is staged content, where there is no byte of it yet. */
const madeName = 'made';

/** The object that says that staged content is over, and what still lies there is waste. */
const overName = 'over';

const deletesAtOnce = 8;

/** No content is in so many pieces: a listing that is longer has no end. */
const mostObjects = 20_000;

/** A piece of staged content, as an object. */
export interface Segment {
  objectKey: string;
  /** Where it begins in the content, in bytes. */
  start: number;
  size: number;
  etag: string;
}

/** An object in the folder of staged content. */
interface Found {
  name: string;
  size: number;
  etag: string;
}

/** Staged content as it lies in the bucket. */
export interface Staged {
  /** In order, without gaps. */
  segments: Segment[];
  /** Where the content ends. */
  offset: number;
}

/** Staged content as objects `staging/<staged id>/<where it begins>`, whose list is the one truth about it. */
export class Segments {
  readonly #s3: S3Connection;

  constructor(s3: S3Connection) {
    this.#s3 = s3;
  }

  /** The key of the segment that begins at `start`: sorts by it. */
  keyOf(stagedId: string, start: number): string {
    return `${this.#folder(stagedId)}${String(start).padStart(16, '0')}`;
  }

  /** What is there; null when there is no such content. Throws `unavailable` where a piece of it is missing. */
  async find(stagedId: string): Promise<Staged | null> {
    const folder = this.#folder(stagedId);
    const objects = await this.#list(stagedId);
    if (objects.length === 0) return null;
    if (objects.some(({ name }) => name === overName)) {
      // Somebody was stopped while ending it.
      await this.end(stagedId);
      return null;
    }
    const segments: Segment[] = [];
    let offset = 0;
    for (const { name, size, etag } of objects) {
      if (!/^\d{16}$/.test(name)) continue;
      const start = Number(name);
      // Left over where several segments were made one.
      if (start + size <= offset) continue;
      if (start !== offset) throw unavailable('Some of this upload is missing on the backend: start it again.');
      segments.push({ objectKey: folder + name, start, size, etag });
      offset += size;
    }
    return { segments, offset };
  }

  /** Says that there is staged content, empty so far. */
  async make(stagedId: string): Promise<void> {
    await this.#put(this.#folder(stagedId) + madeName);
  }

  /** Removes all of it. Whatever happens in the middle, it is there as a whole or not at all. */
  async end(stagedId: string): Promise<void> {
    const folder = this.#folder(stagedId);
    const over = folder + overName;
    const keys = (await this.#list(stagedId)).map(({ name }) => folder + name);
    if (keys.length > 1 && !keys.includes(over)) await this.#put(over);
    await this.remove(keys.filter((key) => key !== over));
    if (keys.length > 1 || keys.includes(over)) await this.remove([over]);
  }

  async remove(keys: readonly string[]): Promise<void> {
    for (let at = 0; at < keys.length; at += deletesAtOnce) {
      await Promise.all(keys.slice(at, at + deletesAtOnce).map((key) => this.#remove(key)));
    }
  }

  async #remove(key: string): Promise<void> {
    const command = new this.#s3.sdk.DeleteObjectCommand({ Bucket: this.#s3.bucket, Key: key });
    await shortCall(this.#s3, (abortSignal) => this.#s3.client.send(command, { abortSignal })).catch(
      (error: unknown) => {
        if (!isMissing(error)) throw error;
      },
    );
  }

  async #put(key: string): Promise<void> {
    const command = new this.#s3.sdk.PutObjectCommand({ Bucket: this.#s3.bucket, Key: key, Body: '' });
    await shortCall(this.#s3, (abortSignal) => this.#s3.client.send(command, { abortSignal }), noSignal);
  }

  async #list(stagedId: string): Promise<Found[]> {
    const folder = `${stagingFolder}/${stagedId}/`;
    const found: Found[] = [];
    let after: string | null = null;
    do {
      const page: Awaited<ReturnType<typeof listBelow>> = await listBelow(this.#s3, folder, after, 1_000);
      for (const { key, object } of page.objects) {
        if (object.Size === undefined || !object.ETag) throw unavailable('The listing of the backend is not whole.');
        found.push({ name: key.slice(folder.length), size: object.Size, etag: object.ETag });
      }
      if (found.length > mostObjects) throw unavailable('The backend does not come to an end with its listing.');
      after = page.next;
    } while (after !== null);
    return found;
  }

  #folder(stagedId: string): string {
    return `${this.#s3.prefix}${stagingFolder}/${stagedId}/`;
  }
}
