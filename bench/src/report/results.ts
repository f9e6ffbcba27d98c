import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Machine } from '../measure/machine.ts';
import type { Row } from '../measure/row.ts';
import { printReport } from './report.ts';

/** What a run leaves behind, for reports and comparisons. */
export interface Results {
  machine: Machine;
  rounds: number;
  minutes: number;
  /** By name. */
  titles: Record<string, string>;
  /** Why a workload could not be measured, by its name. */
  failures: Record<string, string>;
  rows: readonly Row[];
}

/** Writes `report.md` and `results.json`. */
export async function writeResults(folder: string, results: Results): Promise<void> {
  await writeFile(join(folder, 'report.md'), printReport(results));
  await writeFile(join(folder, 'results.json'), toJson(results));
}

/** Reads a `results.json`. Throws where it is none. */
export async function readResults(path: string): Promise<Results> {
  const results: unknown = JSON.parse(await readFile(path, 'utf8'));
  if (!isResults(results)) throw new Error(`${path} holds no results of npm run bench`);
  return results;
}

function isResults(value: unknown): value is Results {
  return typeof value === 'object' && value !== null && 'rows' in value && Array.isArray(value.rows);
}

/** A row a line, with four digits: small, and fit for a diff. */
function toJson({ rows, ...rest }: Results): string {
  const short = (_: string, value: unknown): unknown =>
    typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(4)) : value;
  const head = JSON.stringify(rest, short, 2).slice(0, -2);
  return `${head},\n  "rows": [\n${rows.map((row) => `    ${JSON.stringify(row, short)}`).join(',\n')}\n  ]\n}\n`;
}
