import type { FoundRow } from './check.ts';

/**
 * At most `max` of what was found, so that a kind with many leaves room for the others: those with fewest first, each with an
 * even share of what is left. `count` is of all that there is.
 */
export function fairShare(found: readonly FoundRow[], max: number): { problems: FoundRow[]; count: number } {
  const kinds = [...Map.groupBy(found, ({ kind }) => kind).values()].sort((one, other) => one.length - other.length);
  const problems: FoundRow[] = [];
  let count = 0;
  for (const [index, rows] of kinds.entries()) {
    problems.push(...rows.slice(0, Math.floor((max - problems.length) / (kinds.length - index))));
    count += Number(rows[0]?.total ?? 0);
  }
  return { problems, count };
}
