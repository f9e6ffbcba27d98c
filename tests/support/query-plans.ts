import pg from 'pg';

/** A statement as it went to PostgreSQL. */
export interface Statement {
  text: string;
  values: unknown[];
}

let noted: Map<string, Statement> | null = null;

/** From here on, since a client may take its `query` away from the prototype when it connects. */
const { query } = pg.Client.prototype;
Object.defineProperty(pg.Client.prototype, 'query', {
  value(this: pg.Client, ...args: unknown[]): unknown {
    const statement = statementIn(args);
    if (statement) noted?.set(statement.text, statement);
    return Reflect.apply(query, this, args);
  },
});

/** Collects the statements that all clients of this process send while `work` runs, each text once. */
export async function statementsOf(work: () => Promise<unknown>): Promise<Statement[]> {
  const found = (noted = new Map<string, Statement>());
  try {
    await work();
  } finally {
    noted = null;
  }
  return [...found.values()];
}

/** Only what PostgreSQL makes a plan for. */
const planned = /^\s*(with|select|insert|update|delete)\b/i;

function statementIn([first, second]: unknown[]): Statement | null {
  const { text, values } = Object(first) as { text?: unknown; values?: unknown };
  const statement = typeof first === 'string' ? { text: first, values: second } : { text, values: values ?? second };
  if (typeof statement.text !== 'string' || !planned.test(statement.text)) return null;
  return { text: statement.text, values: Array.isArray(statement.values) ? statement.values : [] };
}

/** A node of what EXPLAIN (FORMAT JSON) gives. */
interface Plan {
  'Node Type': string;
  'Relation Name'?: string;
  'Index Name'?: string;
  'Index Cond'?: string;
  'Plan Rows': number;
  'Total Cost': number;
  Plans?: Plan[];
}

/** More than a page takes, and less than reading a table of 100,000 rows by any way. */
const costMax = 1_500;
const rowsMax = 1_500;

/** What PostgreSQL holds planning for: it keeps one plan for any values if that costs hardly more than a new one. */
const planningCost = 25;

/**
 * Tells what is wrong with the way in which PostgreSQL would run a statement with these values, and again as a prepared
 * one. Nothing is, where each big table is read through an index, and no more of it than a page. `big` names tables that
 * were seeded and analysed; `dearest` is what a statement may cost that is known to look expensive beforehand.
 */
export async function faultsOf(
  pool: pg.Pool,
  { text, values }: Statement,
  big: readonly string[],
  dearest = costMax,
): Promise<string[]> {
  const custom = planIn(await pool.query(`explain (format json) ${text}`, values));
  const generic = planIn(await pool.query(`explain (format json, generic_plan) ${text}`));
  const kept = generic['Total Cost'] < custom['Total Cost'] + planningCost;
  const faults = [
    ...(custom['Total Cost'] > dearest ? [`costs ${custom['Total Cost']}`] : []),
    ...faultsIn(custom, big, ''),
    ...(kept ? faultsIn(generic, big, ' for any values') : []),
  ];
  return faults.map((fault) => `${fault}: ${text.replace(/\s+/g, ' ').trim()}`);
}

/** `bounded`: only some rows are asked for, and nothing in between has to see all of them first. */
function faultsIn(plan: Plan, big: readonly string[], which: string, bounded = false): string[] {
  const type = plan['Node Type'];
  const relation = plan['Relation Name'] ?? '';
  const isBig = big.includes(relation);
  const faults: string[] = [];
  if (type === 'Seq Scan' && isBig) faults.push(`Seq Scan on ${relation}${which}`);
  else if (/^Index.*Scan$/.test(type) && isBig && !bounded && plan['Index Cond'] === undefined)
    faults.push(`${type} of the whole of ${relation}${which}`);
  else if (/Scan$/.test(type) && isBig && !bounded && plan['Plan Rows'] > rowsMax)
    faults.push(`${type} of ${plan['Plan Rows']} rows of ${relation}${which}`);
  const below = type === 'Limit' || (bounded && !/^(Sort|Incremental Sort|Aggregate|Hash)$/.test(type));
  return [...faults, ...(plan.Plans ?? []).flatMap((child) => faultsIn(child, big, which, below))];
}

function planIn(result: pg.QueryResult<{ 'QUERY PLAN': [{ Plan: Plan }] }>): Plan {
  const [row] = result.rows;
  if (!row) throw new Error('EXPLAIN gave nothing');
  return row['QUERY PLAN'][0].Plan;
}
