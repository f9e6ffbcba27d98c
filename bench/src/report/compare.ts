import type { Row } from '../measure/row.ts';
import { meanOf } from '../measure/summary.ts';
import type { Results } from './results.ts';
import { digits, tableOf } from './table.ts';

/**
 * Sets two runs side by side. The last column takes the drift of the machine out: the change of a row over the mean
 * change of the baselines of its workload.
 */
export function compareResults(before: Results, after: Results): string {
  const old = new Map(before.rows.map((row) => [keyOf(row), row]));
  const pairs = after.rows.flatMap((row) => {
    const was = old.get(keyOf(row));
    return was && was.value.median > 0 ? [{ row, was, change: row.value.median / was.value.median }] : [];
  });
  const lines = pairs.map(({ row, was, change }) => {
    const drift = meanOf(
      pairs
        .filter((other) => other.row.workload === row.workload && !isSubject(other.row))
        .map((other) => other.change),
    );
    const beyond = isSubject(row) && drift !== null ? digits(change / drift) : '';
    const { workload, contender, unit } = row;
    return [workload, contender, unit, digits(was.value.median), digits(row.value.median), digits(change), beyond];
  });
  return tableOf([
    ['workload', 'who', 'unit', before.machine.commit, after.machine.commit, 'ratio', 'ratio beyond drift'],
    ...lines,
  ]);
}

function keyOf({ workload, contender, unit }: Row): string {
  return `${workload}/${contender}/${unit}`;
}

/** Stowage, not a baseline. */
function isSubject({ contender }: Row): boolean {
  return /^(one|six)\b/.test(contender);
}
