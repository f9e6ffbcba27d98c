/** One thing that should not be, as a statement finds it. */
export interface Rule {
  kind: string;
  /** SQL: true of a row that shows it. */
  when: string;
  /** SQL: the id of what it is about; null where that is not one thing. */
  id: string;
  /** SQL: a sentence for an admin. */
  detail: string;
}

/** Rules that are judged in one pass over the same rows. */
export interface Check {
  /** SQL: what follows `from`. */
  from: string;
  rules: readonly Rule[];
}

/** Of each kind a statement gives no more than these. */
export const foundMax = 1_000;

/** What a statement finds; `total` counts all of that kind. */
export interface FoundRow {
  kind: string;
  id: string | null;
  detail: string;
  total: string;
}

/** The statement of a check: rows of FoundRow. Whoever passes all rules costs one look at them. */
export function checkStatement({ from, rules }: Check): string {
  const anyRule = rules.map(({ when }) => `(${when})`).join(' or ');
  const each = rules.map(({ kind, when, id, detail }) => `('${kind}', (${when}), (${id})::text, ${detail})`);
  return `
    select kind, id, detail, total from (
      select kind, id, detail, count(*) over (partition by kind) as total,
        row_number() over (partition by kind order by id) as number
      from (
        select rule.kind, rule.id, rule.detail
        from ${from} cross join lateral (values ${each.join(',\n')}) as rule (kind, applies, id, detail)
        where (${anyRule}) and rule.applies) found) numbered
    where number <= ${foundMax} order by kind, number`;
}
