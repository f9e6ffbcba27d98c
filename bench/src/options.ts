import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import type { Mode } from './system/stowage.ts';

export const usage = `npm run bench -- [--only W1,W5] [--runs 5] [--mode one|six|both] [--size full|small]
                 [--out folder] [--profile folder]
npm run bench -- --compare before.json after.json

A whole run writes bench/report.md and bench/results.json; a part of one only where --out names a folder.
--size small sees in a minute that everything works, and measures nothing. --profile has each process of Stowage leave
a CPU profile in a folder, which costs some speed.
`;

/** What to measure. */
export interface Options {
  modes: readonly Mode[];
  rounds: number;
  small: boolean;
  /** Where profiles go. */
  profile: string | null;
  /** Where the report goes. */
  out: string | null;
  /** `W5` chooses W5-stat, W5-page and so on. */
  chooses(workload: string): boolean;
}

export type Command = { compare: readonly [string, string] } | { measure: Options };

/** Reads the command line. Throws where it is not understood. */
export function commandOf(args: string[]): Command {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      only: { type: 'string', default: '' },
      runs: { type: 'string' },
      mode: { type: 'string', default: 'both' },
      size: { type: 'string', default: 'full' },
      out: { type: 'string' },
      profile: { type: 'string' },
      compare: { type: 'boolean', default: false },
    },
  });
  const [before, after, ...rest] = positionals;
  if (values.compare) {
    if (before === undefined || after === undefined || rest.length > 0) throw new Error('--compare takes two files');
    return { compare: [before, after] };
  }
  if (before !== undefined) throw new Error(`"${before}" is not understood`);
  const small = values.size === 'small';
  if (!small && values.size !== 'full') throw new Error('--size is small or full');
  const rounds = Number(values.runs ?? (small ? 1 : 5));
  if (!Number.isInteger(rounds) || rounds < 1) throw new Error('--runs takes a number from 1 on');
  const only = values.only.split(',').filter((name) => name !== '');
  const whole = !small && only.length === 0 && values.mode === 'both';
  return {
    measure: {
      modes: modesOf(values.mode),
      rounds,
      small,
      profile: values.profile === undefined ? null : resolve(values.profile),
      out: values.out ?? (whole ? join(import.meta.dirname, '..') : null),
      chooses: (name) => only.length === 0 || only.some((wanted) => name === wanted || name.startsWith(`${wanted}-`)),
    },
  };
}

function modesOf(mode: string): readonly Mode[] {
  if (mode === 'both') return ['one', 'six'];
  if (mode === 'one' || mode === 'six') return [mode];
  throw new Error('--mode is one, six or both');
}
