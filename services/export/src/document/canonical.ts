import { createHash } from 'node:crypto';
import type { Hash } from 'node:crypto';
import type { SectionName } from './records.ts';

/**
 * A record as canonical JSON (RFC 8785). Its keys must be in order already: V8 writes numbers and strings as the RFC
 * wants them, so that nothing else is left to do.
 */
export function canonicalJson(record: object): string {
  return JSON.stringify(record);
}

/** An object with its keys in the order of RFC 8785, by UTF-16 code units; its values are kept as they are. */
export function inKeyOrder<T>(value: Readonly<Record<string, T>>): Record<string, T> {
  return Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)));
}

/** The digest of a document: over each section its name and LF, then each record's canonical JSON and LF. */
export class DocumentDigest {
  readonly #hash: Hash = createHash('sha256');

  section(name: SectionName): void {
    this.#hash.update(`${name}\n`);
  }

  /** Records of the section begun last, each in canonical JSON. */
  records(lines: readonly string[]): void {
    if (lines.length > 0) this.#hash.update(`${lines.join('\n')}\n`);
  }

  /** Of such lines, each with its LF, any piece. */
  bytes(bytes: Uint8Array): void {
    this.#hash.update(bytes);
  }

  /** Lower-case hexadecimal. */
  hex(): string {
    return this.#hash.digest('hex');
  }
}
