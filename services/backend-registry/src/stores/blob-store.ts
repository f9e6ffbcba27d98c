import type { Readable } from 'node:stream';

/** The first byte and the one after the last, in bytes. */
export interface ByteRange {
  start: number;
  end: number;
  /** The size that the whole blob has to have, in bytes, where the reader knows it: so that one call tells all of it. */
  of?: number;
}

/** What a body must turn out to be. */
export interface ExpectedContent {
  /** In bytes. */
  size: number;
  sha256: Uint8Array;
}

/** One page of what lies in a store. */
export interface BlobPage {
  blobs: ListedBlob[];
  /** Where the next page begins; null on the last one. */
  next: string | null;
}

/** A blob as the store lists it. */
export interface ListedBlob {
  key: string;
  /** In bytes. */
  size: number;
  modifiedAt: Date;
}

/**
 * Where blobs lie. Knows keys and bytes only; nothing outside `stores/` knows which kind it has.
 * Kept exports are read, written, found and removed as blobs are, by the keys that exportKey() makes; they are in no listing.
 * Every method throws AppError: `unavailable` when the store can't be asked, `validation_failed` for a key that neither
 * blobKey() nor exportKey() made. Nothing here is retried: that is done around it.
 */
export interface BlobStore {
  /** The backend id in the identity marker; null when there is no marker, as in an unmounted disk. */
  identity(): Promise<string | null>;

  /** Readies the store, once its identity was found right: folders are made, what a crash left half-written goes. */
  prepare(): Promise<void>;

  /**
   * The bytes of `range`. Throws `not_found` when there is no such blob, or a shorter one, and `checksum_mismatch` when it
   * is longer than it has to be (`range.of`). What becomes shorter later
   * breaks the stream. `signal` aborted breaks it too (with its reason where that is an AppError); that, the end, and
   * destroying the stream give all resources back.
   */
  read(key: string, range: ByteRange, signal: AbortSignal): Promise<Readable>;

  /** The size in bytes of a whole, visible blob; null when there is none. */
  stat(key: string): Promise<{ size: number } | null>;

  /** Removes a blob, durably. A missing one is success, so it may be called twice. Readers that have begun go on. */
  delete(key: string): Promise<void>;

  /**
   * A whole blob. It becomes visible under `key` at once and durably, after its length and sha256 were found right over
   * what was sent, or not at all. One that is there already is replaced as a whole. `body` is never destroyed by the
   * store, its pieces may be freed only by their owner; it is left where it stands when the write fails.
   * Errors: `checksum_mismatch`, `upload_incomplete` (the body is shorter or longer), `insufficient_storage`,
   * `unavailable`; what broke the body, and the reason of `signal`, where they are AppErrors.
   */
  write(key: string, content: ExpectedContent, body: Readable, signal: AbortSignal): Promise<void>;

  /**
   * A copy that the server of both can make of a blob of `source` by itself; null where it can't, or where there is no such
   * blob. What it copies is not seen here: the blob must be read from `source` before it is made.
   */
  serverCopy(source: BlobStore, key: string): Promise<ServerCopy | null>;

  /**
   * One page of at most `limit` blobs, in the order of their keys, byte by byte; a page may be empty and still
   * not be the last. A listing that can't be read whole throws. What is not at a blob's key (the marker, staged
   * content, temporary objects) is left out. `cursor` is the `next` of the page before, null at the beginning.
   */
  list(cursor: string | null, limit: number): Promise<BlobPage>;

  /**
   * Writes the identity marker, where there is none or this backend's own. Throws `state_conflict` where another's is, or
   * something that can't be read. Of two who claim at once one wins.
   */
  claim(backendId: string): Promise<void>;

  /**
   * Removes what writes left half-done before `before`: temporary objects, multipart uploads that nobody knows. Gives how
   * many. What was written to since is left alone, so `before` must be longer ago than a write may pause.
   */
  sweep(before: Date): Promise<number>;
}

/** A copy of a blob as it was when this was asked for. */
export interface ServerCopy {
  /**
   * Puts it at the same key, as `write` does. Throws `unavailable` where the blob was replaced since, and where the server is
   * not willing.
   */
  make(signal: AbortSignal): Promise<void>;
}

/** One page of the content that is staged in a store. */
export interface StagedPage {
  staged: ListedStaged[];
  /** Where the next page begins; null on the last one. */
  next: string | null;
}

/** Staged content as the store lists it. */
export interface ListedStaged {
  id: string;
  /** When any of it was last written to, by the clock of the store. */
  modifiedAt: Date;
}

/** One body to append. */
export interface Append {
  stagedId: string;
  /** Where the body begins, which must be where the content ends. */
  offset: number;
  /** The content never grows past this, in bytes. */
  limit: number;
  /** Of the writer's lease: a higher one stops a lower one. */
  fence: bigint;
  /** The body makes the content. What fills it up to the limit is durable once it is looked at or sealed. */
  create: boolean;
  /** What the body must hash to; null for no such demand. */
  checksum: { algorithm: 'sha1' | 'sha256'; digest: Uint8Array } | null;
  /** Sees the bytes as they are written. */
  observer: AppendObserver;
}

/** Follows an append, so that the content need not be read again to know its digest. */
export interface AppendObserver {
  /** Called before the first byte, when `offset` was found to be where the content ends. */
  start(offset: number): void;
  /** Called for every piece, in order; the piece is only valid during the call. */
  bytes(piece: Uint8Array): void;
  /** Called last: content now ends at `offset`, durably. Null: the store can't vouch for what it has. */
  settle(offset: number | null): void;
}

/** Staged content while nobody writes to it. */
export interface StagedContent {
  size: number;
  /** All of it, from the store itself; breaks with the signal's reason when it is aborted. */
  read(signal: AbortSignal): Promise<Readable>;
}

/** A store that can take content which grows: the ability to be where uploads land. */
export interface AppendableStore extends BlobStore {
  /** Makes empty staged content, durably. May be called twice: content that is there already is left as it is. */
  createStaged(stagedId: string): Promise<void>;

  /** The offset that all before is durable and counts; null when there is no such content. Waits for no writer. */
  stagedOffset(stagedId: string): Promise<number | null>;

  /**
   * Appends `body`; resolves with the new offset once all before it is durable. `body` is never destroyed;
   * its pieces are this method's to free.
   * A body that breaks off, or `signal` aborted: what arrived is kept, durably, and `unavailable` is thrown.
   * With a checksum, nothing of a body counts before all of it was found right, even over a crash.
   * Errors: `not_found`, `state_conflict` (content to be made is there already), `offset_conflict` (member `offset`), `payload_too_large` (the content is filled up to the
   * limit, unless a checksum was given), `locked` (a writer with the same or a higher fence is at work),
   * `chunk_checksum_mismatch`, `insufficient_storage` (what was written counts), `unavailable`.
   */
  append(append: Append, body: Readable, signal: AbortSignal): Promise<number>;

  /**
   * Stops a writer, keeps others out, has `check` look at the content and then moves it to `key`, durably and at once.
   * False when there is no such staged content, which may mean that it was sealed before: may be called again.
   * What `check` throws is thrown on, and the content stays. `signal` is aborted for `check` when the content is
   * discarded meanwhile.
   */
  seal(
    stagedId: string,
    key: string,
    check: (content: StagedContent, signal: AbortSignal) => Promise<void>,
  ): Promise<boolean>;

  /** Stops a writer and removes staged content, durably. Missing content is success, so it may be called twice. */
  discard(stagedId: string): Promise<void>;

  /**
   * One page of at most `limit` pieces of staged content, by their ids, with what is left of one that is half removed.
   * `cursor` is the `next` of the page before, null at the beginning. A listing that can't be read whole throws.
   */
  listStaged(cursor: string | null, limit: number): Promise<StagedPage>;

  /** How many bytes fit; what is known of a moment ago will do where that is `enough`. */
  freeBytes(enough: number): Promise<number>;
}
