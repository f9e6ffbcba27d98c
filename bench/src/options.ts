import { parseArgs } from 'node:util';
import type { Mode } from './system/stowage.ts';

/** What the command line asks for. */
export interface Options {
  modes: readonly Mode[];
  rounds: number;
  small: boolean;
  /** `W5` chooses W5-stat, W5-page and so on. */
  chooses(workload: string): boolean;
}

/** Reads the command line. Throws where it is not understood. */
export function optionsOf(args: string[]): Options {
  const { values } = parseArgs({
    args,
    options: {
      only: { type: 'string', default: '' },
      runs: { type: 'string' },
      mode: { type: 'string', default: 'both' },
      size: { type: 'string', default: 'full' },
    },
  });
  const small = values.size === 'small';
  const rounds = Number(values.runs ?? (small ? 1 : 5));
  if (!Number.isInteger(rounds) || rounds < 1) throw new Error('--runs takes a number from 1 on');
  if (!['small', 'full'].includes(values.size)) throw new Error('--size is small or full');
  const only = values.only.split(',').filter((name) => name !== '');
  return {
    modes: modesOf(values.mode),
    rounds,
    small,
    chooses: (workload) =>
      only.length === 0 || only.some((name) => workload === name || workload.startsWith(`${name}-`)),
  };
}

function modesOf(mode: string): readonly Mode[] {
  if (mode === 'both') return ['one', 'six'];
  if (mode === 'one' || mode === 'six') return [mode];
  throw new Error('--mode is one, six or both');
}
