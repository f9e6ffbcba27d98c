import { canonicalJson } from './canonical.ts';
import type { Findings } from './findings.ts';
import { findingsMax } from './findings.ts';
import { Header } from './header.ts';
import { OrderedDigest } from './ordered-digest.ts';
import type { LineStore } from './ordered-digest.ts';
import { duplicateIn, parseBatch } from './record-batch.ts';
import { sectionNames } from './records.ts';
import type { RecordOf, SectionName } from './records.ts';
import { inOrder, sections } from './sections.ts';
import type { Section } from './sections.ts';
import type { Layout, Piece, RecordBatch } from './splitter.ts';
import { pointerOf, Unreadable } from './unreadable.ts';
import { isWellFormed, surrogateEscape } from './well-formed.ts';
import { upgradeRecord } from './upgrade.ts';

/** Who is given the records that are right in themselves. */
export interface RecordSink {
  begin(section: SectionName): void;
  add<S extends SectionName>(section: S, position: number, record: RecordOf<S>): void;
  /** Whether what was added should be flushed. */
  readonly isFull: boolean;
  flush(): Promise<void>;
}

/** A document with more errors than this is not read any further. */
const errorsMax = 100_000;

export const documentLayout: Layout = Object.fromEntries(sectionNames.map((name) => [name, 'records']));

/** Checks a document, piece by piece, and hands its records on. What is wrong is in `findings`. */
export class DocumentReader {
  readonly findings: Findings;
  readonly header: Header;
  readonly counts: Record<SectionName, number> = {
    directories: 0,
    files: 0,
    blobs: 0,
    replicas: 0,
    backends: 0,
    policies: 0,
  };
  /** Whether each record is right in itself, and was handed on. */
  allRight = true;
  readonly #sink: RecordSink | null;
  readonly #digest: OrderedDigest;
  readonly #seen = new Set<SectionName>();
  #lastId: string | null = null;
  #duplicate = false;

  constructor(findings: Findings, store: LineStore, sink: RecordSink | null) {
    this.findings = findings;
    this.header = new Header(findings);
    this.#sink = sink;
    this.#digest = new OrderedDigest(store);
  }

  /** Takes the next piece of the document, `key` being its own key in it; a promise where the caller is to wait. */
  take(key: string, piece: Piece): Promise<void> | undefined {
    switch (piece.kind) {
      case 'value':
      case 'object':
        this.header.take(key, piece.kind === 'value' ? piece.bytes : null);
        return undefined;
      case 'list':
        return this.#begin(nameOf(key));
      case 'records':
        return this.#duplicate ? undefined : this.#records(nameOf(key), piece.batch);
      case 'list_end':
        return this.#sink?.flush();
    }
  }

  /** What is left to be said at the end. Gives the digest of what was read. */
  async finish(): Promise<string> {
    for (const name of sectionNames) {
      if (!this.#seen.has(name)) this.findings.error(pointerOf(name), 'missing', 'This section is missing.');
    }
    const sha256 = await this.#digest.hex();
    this.header.finish(this.counts, sha256);
    return sha256;
  }

  async #begin(name: SectionName): Promise<void> {
    this.#duplicate = this.#seen.has(name);
    if (this.#duplicate) {
      this.findings.error(pointerOf(name), 'duplicate_key', 'The document has this section twice.');
      this.allRight = false;
      return;
    }
    this.#seen.add(name);
    this.#lastId = null;
    this.#sink?.begin(name);
    await this.#digest.begin(name);
  }

  #records(name: SectionName, batch: RecordBatch): Promise<void> | undefined {
    const { values, text } = parseBatch(name, batch);
    const lines = values.map((value) => canonicalJson(Object(inOrder(value))));
    // In a document as it is written here, the lines make up the text: no record has a key twice.
    const isCanonical = lines.join(',\n') === text;
    const mayHaveHalves = surrogateEscape.test(text);
    for (const [index, value] of values.entries()) {
      if (mayHaveHalves && !isWellFormed(value)) this.#refuseHalves(name, batch.first + index);
      if (!isCanonical) this.#refuseDuplicates(name, batch, index, lines[index] ?? '');
      this.#record(sections[name], batch.first + index, value);
    }
    this.counts[name] += values.length;
    if (this.findings.errorCount > errorsMax) {
      throw new Unreadable({
        pointer: pointerOf(name),
        code: 'too_many_errors',
        detail: 'There are too many errors to read on.',
      });
    }
    const kept = this.#digest.records(lines);
    const flushed = this.#sink?.isFull ? this.#sink.flush() : undefined;
    return kept && flushed ? kept.then(() => flushed) : (kept ?? flushed);
  }

  #refuseDuplicates(name: SectionName, batch: RecordBatch, index: number, canonical: string): void {
    const pointer = duplicateIn(batch, index, canonical);
    if (pointer === null) return;
    this.allRight = false;
    this.findings.error(
      `${pointerOf(name, batch.first + index)}${pointer}`,
      'duplicate_key',
      'The record has this key twice.',
    );
  }

  #refuseHalves(name: SectionName, position: number): void {
    this.allRight = false;
    this.findings.error(pointerOf(name, position), 'invalid', 'A text must not contain unpaired surrogates.');
  }

  #record<S extends SectionName>(section: Section<S>, position: number, value: unknown): void {
    const { errorCount } = this.findings;
    const pointer = `/${section.name}/${position}`;
    const upgraded = upgradeRecord(this.header.version, section.name, value);
    const record = section.checked(upgraded);
    if (record === null) this.#schemaFaults(section, upgraded, pointer);
    else {
      section.rules(record, (field, code, detail) => this.findings.error(pointer + field, code, detail));
      this.#order(section.idOf(record), pointer);
    }
    if (this.findings.errorCount > errorCount || record === null) this.allRight = false;
    else this.#sink?.add(section.name, position, record);
  }

  #schemaFaults<S extends SectionName>(section: Section<S>, value: unknown, pointer: string): void {
    // Nobody is told of it any more: counting is enough.
    if (this.findings.errorCount >= findingsMax) this.findings.error(pointer, 'invalid', '');
    else section.schemaFaults(value, (field, code, detail) => this.findings.error(pointer + field, code, detail));
  }

  #order(id: string, pointer: string): void {
    const last = this.#lastId;
    this.#lastId = id;
    if (last === null || last < id) return;
    if (last === id) this.findings.error(pointer, 'duplicate_id', 'The record before has the same id.');
    else this.findings.error(pointer, 'unordered', 'Records must be in the order of their ids.');
  }
}

function nameOf(key: string): SectionName {
  const name = sectionNames.find((known) => known === key);
  if (name === undefined) throw new Error('not a section');
  return name;
}
