import { DocumentDigest } from './canonical.ts';
import { sectionNames } from './records.ts';
import type { SectionName } from './records.ts';

/** Keeps the canonical lines of a section until it is their turn. */
export interface LineStore {
  keep(section: SectionName, lines: readonly string[]): Promise<void>;
  /** What was kept of a section, in its order. */
  read(section: SectionName): AsyncIterable<readonly string[]>;
}

/** The digest of a document whose sections come in any order: those that come too early wait in a store. */
export class OrderedDigest {
  readonly #digest = new DocumentDigest();
  readonly #store: LineStore;
  readonly #early = new Set<SectionName>();
  #next = 0;
  #current: SectionName | null = null;

  constructor(store: LineStore) {
    this.#store = store;
  }

  /** A section begins. */
  async begin(section: SectionName): Promise<void> {
    await this.#replay();
    this.#current = section;
    if (sectionNames[this.#next] === section) {
      this.#digest.section(section);
      this.#next += 1;
    } else this.#early.add(section);
  }

  /** Lines of the section begun last; a promise where they are put aside. */
  records(lines: readonly string[]): Promise<void> | undefined {
    const section = this.#current;
    if (section !== null && this.#early.has(section)) return this.#store.keep(section, lines);
    this.#digest.records(lines);
    return undefined;
  }

  /** Lower-case hexadecimal, once all was read. A section that never came counts as empty. */
  async hex(): Promise<string> {
    for (const section of sectionNames.slice(this.#next)) {
      await this.#replay();
      if (sectionNames[this.#next] !== section) continue;
      this.#digest.section(section);
      this.#next += 1;
    }
    await this.#replay();
    return this.#digest.hex();
  }

  async #replay(): Promise<void> {
    for (let next = sectionNames[this.#next]; next && this.#early.delete(next); next = sectionNames[this.#next]) {
      this.#digest.section(next);
      this.#next += 1;
      for await (const lines of this.#store.read(next)) this.#digest.records(lines);
    }
  }
}
