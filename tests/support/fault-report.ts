import { faultSizes } from './fault-sizes.ts';

/** What one part of a fault test did, in figures. */
export type Figures = Record<string, string | number>;

/** The table at the end of a fault test: what ran, what was left out and why, and the figures. */
export class FaultReport {
  readonly #title: string;
  readonly #rows: string[] = [];

  constructor(title: string) {
    this.#title = title;
  }

  add(part: string, figures: Figures): void {
    const cells = Object.entries(figures).map(([name, value]) => `${name} ${value}`);
    this.#rows.push(`${part.padEnd(40)} ${cells.join(', ')}`);
  }

  leftOut(part: string, why: string): void {
    this.#rows.push(`${part.padEnd(40)} left out: ${why}`);
  }

  print(): void {
    process.stderr.write(`\n== ${this.#title}, ${faultSizes.name}\n${this.#rows.join('\n')}\n`);
  }
}

/** The middle and the largest of some times, for a report. */
export function timesOf(milliseconds: readonly number[]): string {
  if (milliseconds.length === 0) return '-';
  const sorted = milliseconds.map(Math.round).sort((a, b) => a - b);
  return `median ${sorted[Math.floor(sorted.length / 2)] ?? 0} ms, longest ${sorted.at(-1) ?? 0} ms`;
}
