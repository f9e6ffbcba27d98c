import { sha256 } from '../support/client.ts';

/** What a client knows of one file that it set out to make. */
export interface Entry {
  name: string;
  size: number;
  sha256: string;
  /** `unknown`: the request that makes the file broke off and was not sent again. */
  outcome: 'intent' | 'ok' | 'unknown';
  fileId: string | null;
}

/** The clients' own record of a fault test, against which the service is judged. */
export class Journal {
  readonly entries = new Map<string, Entry>();
  /** What must never happen, in words. */
  readonly violations: string[] = [];
  /** How often requests broke off or were put off. */
  interruptions = 0;

  intend(name: string, bytes: Buffer): Entry {
    const entry: Entry = { name, size: bytes.length, sha256: sha256(bytes), outcome: 'intent', fileId: null };
    this.entries.set(name, entry);
    return entry;
  }

  violated(what: string): void {
    this.violations.push(what);
  }

  count(outcome: Entry['outcome']): number {
    return [...this.entries.values()].filter((entry) => entry.outcome === outcome).length;
  }
}
