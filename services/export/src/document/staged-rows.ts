import { finished } from 'node:stream/promises';
import type { ClientBase } from 'pg';
import { from as copyFrom } from 'pg-copy-streams';
import { copyTargets } from './copy-rows.ts';
import type { RecordOf, SectionName } from './records.ts';
import { stagedTable } from './staged-tables.ts';

const copyBytes = 512 * 1024;
/** Bytes that a unit of a text may take. */
const utf8Max = 3;

/**
 * Writes records into the staged tables of a document, by a COPY of about half a MiB each: a client that is slow holds no
 * statement open. While PostgreSQL takes one, the next is made; memory holds two, as bytes: texts would live long enough to
 * fill the heap.
 */
export class StagedRows {
  readonly #client: ClientBase;
  readonly #number: number;
  #section: SectionName | null = null;
  #rows = Buffer.allocUnsafe(2 * copyBytes);
  /** How many of the bytes of `rows` are filled. */
  #length = 0;
  /** What PostgreSQL takes now, or took last. */
  #sent = Buffer.allocUnsafe(2 * copyBytes);
  #copying: Promise<void> = Promise.resolve();

  constructor(client: ClientBase, number: number) {
    this.#client = client;
    this.#number = number;
  }

  /** Takes a record. */
  add<S extends SectionName>(section: S, position: number, record: RecordOf<S>): void {
    if (this.#section !== section) throw new Error('records of a section that was not begun');
    const row = `${position}\t${copyTargets[section].row(record)}\n`;
    const most = this.#length + row.length * utf8Max;
    if (most > this.#rows.length) this.#rows = Buffer.concat([this.#rows], most);
    this.#length += this.#rows.write(row, this.#length);
  }

  /** Begins with a section; the one before must be flushed. */
  begin(section: SectionName): void {
    this.#section = section;
  }

  /** Whether there is enough to be written. */
  get isFull(): boolean {
    return this.#length >= copyBytes;
  }

  /** Hands what was added to PostgreSQL, once it has taken what came before. */
  async flush(): Promise<void> {
    const section = this.#section;
    await this.#copying;
    if (section === null || this.#length === 0) return;
    const filled = this.#rows;
    this.#copying = this.#copy(section, filled.subarray(0, this.#length));
    this.#rows = this.#sent;
    this.#sent = filled;
    this.#length = 0;
    // Awaited with the next one: until then nobody listens to its failure.
    this.#copying.catch(() => undefined);
  }

  /** Waits until all is there. */
  async end(): Promise<void> {
    await this.flush();
    await this.#copying;
  }

  async #copy(section: SectionName, rows: Buffer): Promise<void> {
    const { table, columns } = copyTargets[section];
    const sql = `copy ${stagedTable(this.#number, table)} (position, ${columns}) from stdin`;
    const stream = this.#client.query(copyFrom(sql));
    stream.end(rows);
    await finished(stream);
  }
}
