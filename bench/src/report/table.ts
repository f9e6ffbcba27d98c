import type { Row } from '../measure/row.ts';
import type { Summary } from '../measure/summary.ts';

/** Markdown tables of the rows of one workload; what single processes took comes in a table of its own. */
export function printRows(rows: readonly Row[]): string {
  const [first] = rows;
  if (!first) return '';
  const names = [...new Set(rows.flatMap(({ details }) => Object.keys(details)))].filter((name) => !processOf(name));
  const lines = rows.map((row) => [
    row.contender,
    spread(row.value),
    ...names.map((name) => (row.details[name] ? spread(row.details[name]) : '')),
  ]);
  const processes = rows.map(printProcesses).join('');
  return `${tableOf([['who', first.unit, ...names], ...lines])}${processes}${printCurve(rows)}`;
}

/** Labels end with what the columns are: `100000 name asc` first, middle, last; `rename` 10, 1000. */
function printCurve(rows: readonly Row[]): string {
  const curves = rows.flatMap(({ contender, curve }) => (curve ? [{ contender, curve }] : []));
  return curves
    .map(({ contender, curve }) => {
      const split = Object.entries(curve).map(([label, value]) => ({
        line: label.slice(0, label.lastIndexOf(' ')),
        column: label.slice(label.lastIndexOf(' ') + 1),
        value,
      }));
      const columns = [...new Set(split.map(({ column }) => column))];
      const lines = [...new Set(split.map(({ line }) => line))].map((line) => [
        line,
        ...columns.map((column) => {
          const found = split.find((point) => point.line === line && point.column === column);
          return found ? spread(found.value) : '';
        }),
      ]);
      return `\n${tableOf([[`${contender}, ms`, ...columns], ...lines])}`;
    })
    .join('');
}

/** The services of a row that ran as several. */
function printProcesses({ contender, details }: Row): string {
  const names = new Set(Object.keys(details).flatMap((name) => processOf(name) ?? []));
  if (names.size < 3) return '';
  const each = [...names].map((name) => {
    const [cpu, memory] = [details[`CPU of ${name}`], details[`RSS of ${name}`]];
    return `${name} ${digits(cpu?.median ?? 0)} / ${digits(memory?.median ?? 0)}`;
  });
  return `\n${contender}, each process (CPU / MiB): ${each.join(', ')}\n`;
}

function processOf(detail: string): string | null {
  return /^(?:CPU|RSS) of (.+)$/.exec(detail)?.[1] ?? null;
}

/** `median (min–max)`. */
export function spread({ median, min, max }: Summary): string {
  return median === min && median === max ? digits(median) : `${digits(median)} (${digits(min)}–${digits(max)})`;
}

/** A Markdown table; the first line is its head. */
export function tableOf([head = [], ...lines]: readonly (readonly string[])[]): string {
  return [head, head.map(() => '---'), ...lines].map((cells) => `| ${cells.join(' | ')} |\n`).join('');
}

/** Three digits that count, without an exponent. */
export function digits(value: number): string {
  if (value === 0) return '0';
  return Math.abs(value) >= 100 ? value.toFixed(0) : Number(value.toPrecision(3)).toString();
}
