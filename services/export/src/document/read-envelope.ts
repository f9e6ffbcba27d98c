import type { Readable } from 'node:stream';
import type pg from 'pg';
import { toDatabaseError } from '@stowage/common/database/database-error';
import { unavailable, validationError } from '@stowage/common/errors';
import { duplicateKey } from './duplicate-key.ts';
import { documentLayout, DocumentReader } from './document-reader.ts';
import type { Expanding } from './expanded.ts';
import { Findings } from './findings.ts';
import { KeptLines } from './kept-lines.ts';
import type { LineStore } from './ordered-digest.ts';
import { split, tellUnreadable } from './read-document.ts';
import type { SectionName } from './records.ts';
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
 * Reads `{ "document": …, … }` without holding the document, its fields in any order. Throws AppError `validation_failed` for what
 * is not JSON or has a field twice, `payload_too_large`, `unavailable`.
 */
export async function readEnvelope(bulk: pg.Pool, body: Readable, expanding: Expanding): Promise<Envelope> {
  const lines = new BorrowedLines(bulk);
  try {
    const envelope = await new EnvelopeReader(lines).read(body, expanding);
    await lines.giveBack();
    return envelope;
  } catch (error) {
    lines.drop();
    throw expanding.signal.aborted ? unavailable('The body was not sent to its end.', error) : toDatabaseError(error);
  }
}

/** Lines kept on a connection that is taken when the first ones have to be: most bodies are small, or in order. */
class BorrowedLines implements LineStore {
  readonly #bulk: pg.Pool;
  #client: pg.PoolClient | null = null;
  #lines: KeptLines | null = null;

  constructor(bulk: pg.Pool) {
    this.#bulk = bulk;
  }

  async keep(section: SectionName, lines: readonly string[]): Promise<void> {
    this.#client ??= await this.#bulk.connect();
    this.#lines ??= new KeptLines(this.#client);
    await this.#lines.keep(section, lines);
  }

  async *read(section: SectionName): AsyncGenerator<readonly string[]> {
    if (this.#lines) yield* this.#lines.read(section);
  }

  async giveBack(): Promise<void> {
    await this.#client?.query('discard temporary');
    this.#client?.release();
    this.#client = null;
  }

  drop(): void {
    this.#client?.release(true);
  }
}

class EnvelopeReader {
  readonly #fields = new Map<string, unknown>();
  readonly #findings = new Findings();
  readonly #document: DocumentReader;
  #hasDocument = false;

  constructor(lines: LineStore) {
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
