import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import type { BackendFacts } from './planner/facts.ts';

interface Row {
  id: string;
  enabled: boolean;
  health_status: BackendFacts['health'];
  age_ms: string;
}

/** All backends as backend-registry shows them to the planner. */
export async function loadBackends(db: QueryExecutorProvider): Promise<Map<string, BackendFacts>> {
  const { rows } = await query(() =>
    sql<Row>`
      select id, enabled, health_status, floor(extract(epoch from now() - health_since) * 1000)::bigint as age_ms
      from registry.backend_standing`.execute(db),
  );
  return new Map(
    rows.map((row) => [
      row.id,
      { id: row.id, enabled: row.enabled, health: row.health_status, healthAgeMs: Number(row.age_ms) },
    ]),
  );
}
