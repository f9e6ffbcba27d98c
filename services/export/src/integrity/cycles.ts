import type { ClientBase } from 'pg';
import type { FoundRow } from './check.ts';
import { foundMax } from './check.ts';

/** Directories that no way down leads to; of so many at most it is told which lie in a cycle. */
const unreachedMax = 100_000;

interface Unreached {
  id: string;
  parent_id: string | null;
  name: string;
  total: string;
}

/**
 * Directories that can't be reached from where the tree begins: the root, and what lost its place in the recycle bin. `cycle` for
 * those that lie below themselves, `unreachable` for those below such a one or below what does not exist.
 */
export async function findCycles(client: ClientBase): Promise<FoundRow[]> {
  // Without `offset 0` PostgreSQL may read all nodes again for each level of the tree.
  const { rows } = await client.query<Unreached>(`
    with recursive reached as (
      select id from catalog.nodes where parent_id is null and kind = 'directory'
      union all
      select child.id from reached cross join lateral (
        select id from catalog.nodes where parent_id = reached.id and kind = 'directory' offset 0) child)
    select n.id, n.parent_id, n.name, count(*) over () as total from catalog.nodes n left join reached on reached.id = n.id
    where n.kind = 'directory' and reached.id is null
    order by n.id limit ${unreachedMax}`);
  const inCycles = cyclesOf(new Map(rows.map((row) => [row.id, row.parent_id])));
  const [cycles, others] = [rows.filter(({ id }) => inCycles.has(id)), rows.filter(({ id }) => !inCycles.has(id))];
  const hidden = Number(rows[0]?.total ?? 0) - rows.length;
  return [
    ...found('cycle', cycles, 0, ({ name }) => `The directory «${name}» lies below itself.`),
    ...found('unreachable', others, hidden, ({ name }) => `No way leads from the root to the directory «${name}».`),
  ];
}

function found(
  kind: string,
  rows: readonly Unreached[],
  hidden: number,
  detail: (row: Unreached) => string,
): FoundRow[] {
  const total = String(rows.length + hidden);
  return rows.slice(0, foundMax).map((row) => ({ kind, id: row.id, detail: detail(row), total }));
}

/** Of nodes that each have at most one parent, those that are their own ancestors. */
export function cyclesOf(parents: ReadonlyMap<string, string | null>): Set<string> {
  const inCycles = new Set<string>();
  const walked = new Set<string>();
  for (const start of parents.keys()) {
    const path: string[] = [];
    let at: string | null = start;
    for (; at !== null && !walked.has(at); at = parents.get(at) ?? null) {
      walked.add(at);
      path.push(at);
    }
    const begins = at === null ? -1 : path.indexOf(at);
    if (begins >= 0) for (const id of path.slice(begins)) inCycles.add(id);
  }
  return inCycles;
}
