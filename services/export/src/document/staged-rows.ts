import { finished } from 'node:stream/promises';
import type { ClientBase } from 'pg';
import { from as copyFrom } from 'pg-copy-streams';
import { copyTargets } from './copy-rows.ts';
import type { RecordOf, SectionName } from './records.ts';
import { stagedTable } from './staged-tables.ts';

const copyLength = 1024 * 1024;

/**
 * Writes records into the staged tables of a document, by a COPY of about a MiB each: a client that is slow holds no statement
 * open. While PostgreSQL takes one, the next is made; memory holds two.
 */
export class StagedRows {
  readonly #client: ClientBase;
  readonly #number: number;
  #section: SectionName | null = null;
  #rows: string[] = [];
  #length = 0;
  #copying: Promise<void> = Promise.resolve();

  constructor(client: ClientBase, number: number) {
    this.#client = client;
    this.#number = number;
  }

  /** Takes a record; a promise where the caller is to wait before the next. */
  add<S extends SectionName>(section: S, position: number, record: RecordOf<S>): void {
    if (this.#section !== section) throw new Error('records of a section that was not begun');
    const row = `${position}\t${copyTargets[section].row(record)}\n`;
    this.#rows.push(row);
    this.#length += row.length;
  }

  /** Begins with a section; the one before must be flushed. */
  begin(section: SectionName): void {
    this.#section = section;
  }

  /** Whether there is enough to be written. */
  get isFull(): boolean {
    return this.#length >= copyLength;
  }

  /** Hands what was added to PostgreSQL, once it has taken what came before. */
  async flush(): Promise<void> {
    const section = this.#section;
    const text = this.#rows.join('');
    this.#rows = [];
    this.#length = 0;
    await this.#copying;
    if (section === null || text === '') return;
    this.#copying = this.#copy(section, text);
    // Awaited with the next one: until then nobody listens to its failure.
    this.#copying.catch(() => undefined);
  }

  /** Waits until all is there. */
  async end(): Promise<void> {
    await this.flush();
    await this.#copying;
  }

  async #copy(section: SectionName, text: string): Promise<void> {
    const { table, columns } = copyTargets[section];
    const sql = `copy ${stagedTable(this.#number, table)} (position, ${columns}) from stdin`;
    const stream = this.#client.query(copyFrom(sql));
    stream.end(text);
    await finished(stream);
  }
}
