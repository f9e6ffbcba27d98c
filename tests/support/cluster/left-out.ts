import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

/** A file of contract tests that can't run against a cluster. */
export interface LeftOut {
  file: string;
  why: string;
}

const folder = join(import.meta.dirname, '../../contract');

/** What a test may need that a release in a cluster, shared by all tests, does not give. The first that holds is told. */
const reasons: readonly { why: string; holds: (source: string) => boolean }[] = [
  { why: 'starts a system of its own', holds: (source) => source.includes('startSystem(') },
  { why: 'has servers of its own, at 127.0.0.1', holds: (source) => source.includes('createServer(') },
  {
    why: 'looks into the folders of local backends',
    holds: (source) => source.includes("from 'node:fs/promises'") && source.includes('root_path'),
  },
];

/** The files of tests/contract that the project `cluster-contract` leaves out, by what their text says. */
export function leftOut(): LeftOut[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.test.ts'))
    .sort()
    .flatMap((file) => {
      const source = readFileSync(join(folder, file), 'utf8');
      const reason = reasons.find(({ holds }) => holds(source));
      return reason ? [{ file, why: reason.why }] : [];
    });
}
