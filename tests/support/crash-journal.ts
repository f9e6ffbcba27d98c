import { closeSync, fsyncSync, openSync, readFileSync, writeSync } from 'node:fs';
import { sha256 } from './client.ts';

/** What a client knows of one file that it set out to make. */
export interface Entry {
  name: string;
  size: number;
  sha256: string;
  /** `unknown`: the request that makes the file broke off and was not sent again. */
  outcome: 'intent' | 'ok' | 'unknown';
  fileId: string | null;
  /** Whether it was deleted again: `asked` while no answer has said so. */
  removal: 'none' | 'asked' | 'ok';
}

type Line =
  | { kind: 'file'; entry: Entry }
  | { kind: 'call'; call: number; what: string }
  | { kind: 'answer'; call: number; status: number | null }
  | { kind: 'violation'; what: string };

/**
 * The clients' own record of a fault test, against which the service is judged. With a file it outlives the client: a
 * line is on the disk before each call is made and after it was answered.
 */
export class Journal {
  readonly entries = new Map<string, Entry>();
  /** What must never happen, in words. */
  readonly violations: string[] = [];
  /** How often requests broke off or were put off. */
  interruptions = 0;
  /** How many calls were answered with each status; `none` where the connection broke. */
  readonly answers: Record<string, number> = {};
  readonly #fd: number | null;
  #calls = 0;

  constructor(file: string | null = null) {
    this.#fd = file === null ? null : openSync(file, 'a');
  }

  /** What the journal in `file` says, for a checker that takes nobody's word but its. */
  static read(file: string): Journal {
    const journal = new Journal();
    const open = new Set<number>();
    for (const text of readFileSync(file, 'utf8').split('\n').filter(Boolean)) {
      const line = JSON.parse(text) as Line;
      if (line.kind === 'file') journal.entries.set(line.entry.name, line.entry);
      else if (line.kind === 'violation') journal.violations.push(line.what);
      else if (line.kind === 'call') open.add(line.call);
      else {
        open.delete(line.call);
        if (line.status === null || line.status === 503) journal.interruptions += 1;
      }
    }
    if (open.size > 0) journal.violations.push(`${open.size} calls came to no end`);
    return journal;
  }

  intend(name: string, bytes: Buffer): Entry {
    const entry: Entry = {
      name,
      size: bytes.length,
      sha256: sha256(bytes),
      outcome: 'intent',
      fileId: null,
      removal: 'none',
    };
    this.entries.set(name, entry);
    this.#write({ kind: 'file', entry });
    return entry;
  }

  /** Notes what became of a file. */
  settle(entry: Entry, change: Partial<Pick<Entry, 'outcome' | 'fileId' | 'removal'>>): void {
    Object.assign(entry, change);
    this.#write({ kind: 'file', entry });
  }

  /** Notes a call before it is made; what it gives notes the status of its answer, null for none. */
  calling(what: string): (status: number | null) => void {
    this.#calls += 1;
    const call = this.#calls;
    this.#write({ kind: 'call', call, what });
    return (status) => {
      const name = String(status ?? 'none');
      this.answers[name] = (this.answers[name] ?? 0) + 1;
      this.#write({ kind: 'answer', call, status });
    };
  }

  violated(what: string): void {
    this.violations.push(what);
    this.#write({ kind: 'violation', what });
  }

  count(outcome: Entry['outcome']): number {
    return [...this.entries.values()].filter((entry) => entry.outcome === outcome).length;
  }

  close(): void {
    if (this.#fd !== null) closeSync(this.#fd);
  }

  #write(line: Line): void {
    if (this.#fd === null) return;
    writeSync(this.#fd, `${JSON.stringify(line)}\n`);
    fsyncSync(this.#fd);
  }
}
