import type { Readable } from 'node:stream';
import type pg from 'pg';
import { toDatabaseError } from '@stowage/common/database/database-error';
import { unavailable, validationError } from '@stowage/common/errors';
import { duplicateKey } from './duplicate-key.ts';
import { documentLayout, DocumentReader } from './document-reader.ts';
import type { Expanding } from './expanded.ts';
import { Findings } from './findings.ts';
import { KeptLines } from './kept-lines.ts';
import { split, tellUnreadable } from './read-document.ts';
import type { Piece } from './splitter.ts';
import { notJson, pointerOf, Unreadable } from './unreadable.ts';
import type { Finding } from './unreadable.ts';

/** An object of which one field holds a document, and the others are small. */
export interface Envelope {
  /** The other fields, parsed and otherwise as they came. */
  fields: ReadonlyMap<string, unknown>;
  /** Null where there is none. */
  document: EnvelopedDocument | null;
}

/** What reading a document showed; nothing of it is kept. */
export interface EnvelopedDocument {
  /** What is wrong with it in itself: a document that is right and has the digest of another is that document. */
  errors: Finding[];
  /** Empty where it could not be read to its end. */
  sha256: string;
}

const documentField = 'document';
/** Many more than any request has. */
const fieldsMax = 16;

/**
 * Reads `{ "document": …, … }` without holding the document, its fields in any order. A connection is only used where the sections of
 * the document come in another order than they are written. Throws AppError `validation_failed` for what
 * is not JSON or has a field twice, `payload_too_large`, `unavailable`.
 */
export async function readEnvelope(bulk: pg.Pool, body: Readable, expanding: Expanding): Promise<Envelope> {
  const connection: { client: pg.PoolClient | null } = { client: null };
  const connect = async (): Promise<pg.PoolClient> => (connection.client = await bulk.connect());
  let whole = false;
  try {
    const envelope = await new EnvelopeReader(new KeptLines(connect)).read(body, expanding);
    await connection.client?.query('discard temporary');
    whole = true;
    return envelope;
  } catch (error) {
    throw expanding.signal.aborted ? unavailable('The body was not sent to its end.', error) : toDatabaseError(error);
  } finally {
    connection.client?.release(!whole);
  }
}

class EnvelopeReader {
  readonly #fields = new Map<string, unknown>();
  readonly #findings = new Findings();
  readonly #document: DocumentReader;
  #hasDocument = false;

  constructor(lines: KeptLines) {
    this.#document = new DocumentReader(this.#findings, lines, null);
  }

  async read(body: Readable, expanding: Expanding): Promise<Envelope> {
    let sha256 = '';
    try {
      await split(body, expanding, { [documentField]: documentLayout }, (piece) => this.#take(piece));
      if (this.#hasDocument) sha256 = await this.#document.finish();
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      // The fields that follow were not read: nothing can be said of the envelope.
      tellUnreadable(this.#findings, error);
      throw validationError(this.#findings.errors.map(({ pointer, detail }) => ({ pointer, detail })));
    }
    return { fields: this.#fields, document: this.#hasDocument ? { errors: this.#findings.errors, sha256 } : null };
  }

  #take(piece: Piece): Promise<void> | undefined {
    const [field = '', key] = piece.path;
    if (key !== undefined) return this.#document.take(key, piece);
    if (piece.kind === 'object') this.#begin();
    else if (piece.kind === 'value') this.#value(field, piece.bytes);
    return undefined;
  }

  #begin(): void {
    if (this.#hasDocument) throw validationError([{ pointer: pointerOf(documentField), detail: 'is there twice' }]);
    this.#hasDocument = true;
  }

  #value(field: string, bytes: Buffer): void {
    const pointer = pointerOf(field);
    if (this.#fields.has(field) || (field === documentField && this.#hasDocument)) {
      throw validationError([{ pointer, detail: 'is there twice' }]);
    }
    if (this.#fields.size === fieldsMax) throw validationError([{ pointer, detail: 'is not a field of this request' }]);
    const text = bytes.toString();
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      throw notJson('This is not valid JSON.', pointer, 0);
    }
    if (duplicateKey(text) !== null) throw validationError([{ pointer, detail: 'has a key twice' }]);
    this.#fields.set(field, value);
  }
}
