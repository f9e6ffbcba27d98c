import { query } from '@stowage/common/database/transaction';
import type { Logger } from '@stowage/common/runtime/logger';
import { gauge, observeLooks } from '@stowage/common/runtime/metrics';
import type { Observation } from '@stowage/common/runtime/metrics';
import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import type { Tables } from './tables.ts';

const timing = { everyMs: 15_000, staleMs: 120_000 };

interface BackendRow {
  id: string;
  name: string;
  type: string;
  enabled: boolean;
  healthy: boolean;
  replicas: number;
  bytes: number;
}

/** Tells of each backend whether it is enabled and healthy, and what it holds. Gives what ends that. */
export function observeBackends(db: Kysely<Tables>, logger: Logger): () => void {
  const up = gauge('stowage_backend_up', '1 while a backend is not known to be unhealthy, else 0.');
  const enabled = gauge('stowage_backend_enabled', '1 while a backend may take content, else 0.');
  const replicas = gauge('stowage_backend_replicas', 'Copies of content that a backend holds.');
  const bytes = gauge('stowage_backend_stored_bytes', 'Bytes of them.');
  return observeLooks([up, enabled, replicas, bytes], { ...timing, logger }, async () => {
    const rows = await readBackends(db);
    return rows.flatMap((row): Observation[] => {
      const labels = { backend: row.id, name: row.name, type: row.type };
      return [
        [up, row.healthy ? 1 : 0, labels],
        [enabled, row.enabled ? 1 : 0, labels],
        [replicas, row.replicas, labels],
        [bytes, row.bytes, labels],
      ];
    });
  });
}

async function readBackends(db: Kysely<Tables>): Promise<BackendRow[]> {
  const { rows } = await query(() =>
    sql<BackendRow>`
      select s.id, s.name, t.type, s.enabled, s.health_status <> 'unhealthy' as healthy,
        coalesce(u.replicas, 0)::float8 as replicas, coalesce(u.bytes, 0)::float8 as bytes
      from registry.backend_standing s join registry.backend_types t on t.id = s.id
      left join catalog.backend_usage u on u.backend_id = s.id`.execute(db),
  );
  return rows;
}
