import { isUtf8 } from 'node:buffer';
import type { Findings } from './findings.ts';
import { isRealTime } from './real-time.ts';
import { sectionNames } from './records.ts';
import type { SectionName } from './records.ts';
import { notJson, pointerOf, Unreadable } from './unreadable.ts';
import { currentVersion, oldestVersion } from './upgrade.ts';
import { duplicateKey } from './duplicate-key.ts';

const fields = ['format', 'format_version', 'exported_at', 'instance_id', 'counts', 'sha256'] as const;
type Field = (typeof fields)[number];

const uuidPattern = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const timePattern = /^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z$/;
const digestPattern = /^[0-9a-f]{64}$/;

/** What a document says of itself, beside its records. */
export class Header {
  /** The current one until the document names its own: one of an older version must name it before its first section. */
  version = currentVersion;
  instanceId: string | null = null;
  exportedAt: string | null = null;
  readonly #findings: Findings;
  readonly #seen = new Map<Field, unknown>();

  constructor(findings: Findings) {
    this.#findings = findings;
  }

  /** Takes a value that is no list of records. Throws Unreadable where nothing else in the document can be trusted. */
  take(key: string, bytes: Buffer | null): void {
    const field = fields.find((known) => known === key);
    const value = bytes === null ? undefined : this.#parsed(key, bytes);
    if (field === undefined) this.#refuse(key);
    else if (this.#seen.has(field)) this.#twice(field);
    else {
      this.#seen.set(field, value);
      this.#look(field, value);
    }
  }

  /** Compares with what was read. */
  finish(counts: Readonly<Record<SectionName, number>>, sha256: string): void {
    for (const field of fields) {
      if (!this.#seen.has(field)) this.#findings.error(pointerOf(field), 'missing', 'This field is needed.');
    }
    this.#finishCounts(counts);
    const digest = this.#seen.get('sha256');
    if (typeof digest === 'string' && digestPattern.test(digest) && digest !== sha256) {
      this.#findings.error('/sha256', 'digest_mismatch', 'The records are not those that the digest was made of.');
    }
  }

  #finishCounts(counts: Readonly<Record<SectionName, number>>): void {
    const given = this.#seen.get('counts');
    if (typeof given !== 'object' || given === null) return;
    const told = new Map<string, unknown>(Object.entries(given));
    for (const name of sectionNames) {
      if (!told.has(name)) this.#findings.error(pointerOf('counts', name), 'missing', 'This field is needed.');
      else if (told.get(name) !== counts[name]) {
        this.#findings.error(pointerOf('counts', name), 'count_mismatch', `The section has ${counts[name]} records.`);
      }
      told.delete(name);
    }
    for (const name of told.keys())
      this.#findings.error(pointerOf('counts', name), 'unknown_field', 'There is no such section.');
  }

  #parsed(key: string, bytes: Buffer): unknown {
    if (!isUtf8(bytes)) throw notJson('The document is not valid UTF-8.', pointerOf(key), 0);
    const text = bytes.toString();
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      throw notJson('This is not valid JSON.', pointerOf(key), 0);
    }
    const twice = duplicateKey(text);
    if (twice !== null) this.#findings.error(pointerOf(key) + twice, 'duplicate_key', 'This key is there twice.');
    return value;
  }

  #refuse(key: string): void {
    if (sectionNames.some((name) => name === key)) this.#wrongType(key, 'a list of records');
    else this.#findings.error(pointerOf(key), 'unknown_field', 'There is no such field.');
  }

  #twice(field: Field): void {
    this.#findings.error(pointerOf(field), 'duplicate_key', 'The document has this key twice.');
  }

  #look(field: Field, value: unknown): void {
    switch (field) {
      case 'format':
        if (value !== 'stowage-metadata')
          throw unreadable(field, 'wrong_format', 'This is not an export of Stowage’s metadata.');
        return;
      case 'format_version':
        return this.#lookAtVersion(value);
      case 'exported_at':
        if (typeof value === 'string' && timePattern.test(value) && isRealTime(value)) this.exportedAt = value;
        else this.#wrongType(field, 'a time');
        return;
      case 'instance_id':
        if (typeof value === 'string' && uuidPattern.test(value)) this.instanceId = value;
        else this.#wrongType(field, 'a UUID');
        return;
      case 'counts':
        if (typeof value !== 'object' || value === null || Array.isArray(value)) this.#wrongType(field, 'an object');
        return;
      case 'sha256':
        if (typeof value !== 'string' || !digestPattern.test(value))
          this.#wrongType(field, 'a SHA-256 in lower-case hexadecimal');
    }
  }

  #lookAtVersion(value: unknown): void {
    if (typeof value !== 'number' || !Number.isSafeInteger(value)) {
      throw unreadable('format_version', 'wrong_type', 'This must be a whole number.');
    }
    if (value > currentVersion) {
      const detail = `The document was made by a newer version of Stowage: its format version is ${value}, and this one reads up to ${currentVersion}.`;
      throw unreadable('format_version', 'format_too_new', detail);
    }
    if (value < oldestVersion) {
      const detail = `The format version ${value} is too old: this version reads from ${oldestVersion} on.`;
      throw unreadable('format_version', 'format_too_old', detail);
    }
    this.version = value;
  }

  #wrongType(key: string, wanted: string): void {
    this.#findings.error(pointerOf(key), 'wrong_type', `This must be ${wanted}.`);
  }
}

/** Its own kind of Unreadable: what was found before only follows from it. */
export class WrongFormat extends Unreadable {}

function unreadable(field: Field, code: string, detail: string): WrongFormat {
  return new WrongFormat({ pointer: pointerOf(field), code, detail });
}
