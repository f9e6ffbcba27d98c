import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { sql } from 'kysely';
import type { Kysely, RawBuilder } from 'kysely';
import { decodeCursor, encodeCursor } from '@stowage/common/cursor';
import { query } from '@stowage/common/database/transaction';
import { isId } from '@stowage/common/ids';
import type { BackendSchema } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { noBackend } from './backend-row.ts';
import type { SecretRef } from './secrets/secret-ref.ts';
import { davRootPath } from './stores/open-store.ts';
import type { BackendRow, Tables } from './tables.ts';

export type BackendInit = MessageInitShape<typeof BackendSchema>;

/** A backend with what is shown of its secrets, and what it holds. */
type ShownRow = BackendRow & {
  secret_fields: string[];
  secret_refs: Record<string, SecretRef>;
  replicas: string;
  bytes: string;
};

const defaultLimit = 100;
const maxLimit = 1_000;

/** One page of the backends, by name, each with what it holds. `nextCursor` is left out on the last page. */
export async function listBackends(
  db: Kysely<Tables>,
  page: { limit: number; cursor: string },
): Promise<{ items: BackendInit[]; nextCursor?: string }> {
  const limit = Math.min(Math.max(page.limit || defaultLimit, 1), maxLimit);
  const [after = ''] = decodeCursor(page.cursor, 1) ?? [];
  const rows = await query(() => shown(db, sql`b.name > ${after} order by b.name limit ${limit + 1}`));
  const items = rows.slice(0, limit).map(backendMessage);
  const last = rows[limit - 1];
  return rows.length > limit && last ? { items, nextCursor: encodeCursor([last.name]) } : { items };
}

/** One backend with what it holds. Throws `not_found`. */
export async function getBackend(db: Kysely<Tables>, id: string): Promise<BackendInit> {
  if (!isId(id)) return noBackend();
  const [row] = await query(() => shown(db, sql`b.id = ${id}`));
  return backendMessage(row ?? noBackend());
}

async function shown(db: Kysely<Tables>, wanted: RawBuilder<unknown>): Promise<ShownRow[]> {
  const { rows } = await sql<ShownRow>`
    select b.*, coalesce(u.replicas, 0) as replicas, coalesce(u.bytes, 0) as bytes,
      array(select s.field from registry.backend_secrets s where s.backend_id = b.id order by s.field) as secret_fields,
      (select coalesce(jsonb_object_agg(s.field, jsonb_build_object('name', s.ref_name, 'key', s.ref_key)), '{}')
        from registry.backend_secrets s where s.backend_id = b.id and s.ref_name is not null) as secret_refs
    from registry.backends b
      left join lateral (select * from catalog.backend_usage where backend_id = b.id) u on true
    where ${wanted}`.execute(db);
  return rows;
}

function backendMessage(row: ShownRow): BackendInit {
  return {
    id: row.id,
    name: row.name,
    type: row.type,
    enabled: row.enabled,
    isDefault: row.is_default,
    config: row.type === 'webdav' ? { root_path: davRootPath, ...row.config } : row.config,
    secretFields: row.secret_fields,
    secretRefs: row.secret_refs,
    health: {
      status: row.health_status,
      ...(row.health_checked_at ? { checkedAt: timestampFromDate(row.health_checked_at) } : {}),
      ...(row.health_latency_ms === null ? {} : { latencyMs: Math.round(row.health_latency_ms * 10) / 10 }),
      ...(row.health_detail === null ? {} : { detail: row.health_detail }),
    },
    replicas: BigInt(row.replicas),
    bytes: BigInt(row.bytes),
    version: BigInt(row.version),
    createdAt: timestampFromDate(row.created_at),
    updatedAt: timestampFromDate(row.updated_at),
  };
}
