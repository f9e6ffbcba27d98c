import type { Row } from '../measure/alternate.ts';
import type { Summary } from '../measure/summary.ts';

/** A Markdown table of rows of one workload. */
export function printRows(rows: readonly Row[]): string {
  const [first] = rows;
  if (!first) return '';
  const cpu = first.unit === 'MiB/s' ? 'CPU s/GiB' : 'CPU µs/op';
  const head = [
    'who',
    first.unit,
    'p50 ms',
    'p99 ms',
    `${cpu} Node`,
    `${cpu} PG`,
    'peak RSS MiB',
    'driver cores',
    'parts, s',
  ];
  const lines = rows.map((row) => [
    row.contender,
    ...[row.value, row.p50Ms, row.p99Ms, row.cpuNode, row.cpuPostgres, row.peakRss, row.driverCores].map(spread),
    Object.entries(row.parts)
      .map(([name, part]) => `${name} ${digits(part.median)}`)
      .join(', '),
  ]);
  return `\n### ${first.workload}\n\n${tableOf([head, ...lines])}\n`;
}

/** `median (min–max)`. */
export function spread({ median, min, max }: Summary): string {
  return median === min && median === max ? digits(median) : `${digits(median)} (${digits(min)}–${digits(max)})`;
}

function tableOf([head = [], ...lines]: readonly (readonly string[])[]): string {
  return [head, head.map(() => '---'), ...lines].map((cells) => `| ${cells.join(' | ')} |\n`).join('');
}

/** Three digits that count, without an exponent. */
function digits(value: number): string {
  if (value === 0) return '0';
  return Math.abs(value) >= 100 ? value.toFixed(0) : Number(value.toPrecision(3)).toString();
}
