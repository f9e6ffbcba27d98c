import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { MessageInitShape } from '@bufbuild/protobuf';
import type { Kysely } from 'kysely';
import { decodeCursor, encodeCursor } from '@stowage/common/cursor';
import { query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import type { Client } from '@stowage/common/rpc/contract';
import type { CallContext } from '@stowage/common/rpc/context';
import type { BackendSchema } from '@stowage/proto/stowage/backend_registry/v1/backend';
import type { BackendUsage, ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import type { BackendRow, Tables } from './tables.ts';

type BackendInit = MessageInitShape<typeof BackendSchema>;

interface Needs {
  db: Kysely<Tables>;
  content: Client<typeof ContentService>;
}

const defaultLimit = 100;
const maxLimit = 1_000;

/** One page of the backends, by name, each with what it holds. `nextCursor` is left out on the last page. */
export async function listBackends(
  needs: Needs,
  page: { limit: number; cursor: string },
  context: CallContext,
): Promise<{ items: BackendInit[]; nextCursor?: string }> {
  const limit = Math.min(Math.max(page.limit || defaultLimit, 1), maxLimit);
  const [after = ''] = decodeCursor(page.cursor, 1) ?? [];
  const [rows, usage] = await Promise.all([
    query(() =>
      needs.db
        .selectFrom('registry.backends')
        .selectAll()
        .where('name', '>', after)
        .orderBy('name')
        .limit(limit + 1)
        .execute(),
    ),
    usageByBackend(needs, context),
  ]);
  const items = rows.slice(0, limit).map((row) => backendMessage(row, usage.get(row.id)));
  const last = rows[limit - 1];
  return rows.length > limit && last ? { items, nextCursor: encodeCursor([last.name]) } : { items };
}

/** One backend with what it holds. Throws `not_found`. */
export async function getBackend(needs: Needs, id: string, context: CallContext): Promise<BackendInit> {
  const row = isId(id)
    ? await query(() => needs.db.selectFrom('registry.backends').selectAll().where('id', '=', id).executeTakeFirst())
    : undefined;
  if (!row) throw new AppError('not_found', 'There is no such backend.');
  const usage = await usageByBackend(needs, context);
  return backendMessage(row, usage.get(id));
}

async function usageByBackend(needs: Needs, context: CallContext): Promise<Map<string, BackendUsage>> {
  const { usage } = await needs.content.getBackendUsage({}, context);
  return new Map(usage.map((entry) => [entry.backendId, entry]));
}

function backendMessage(row: BackendRow, usage: BackendUsage | undefined): BackendInit {
  return {
    id: row.id,
    name: row.name,
    type: row.type,
    enabled: row.enabled,
    isDefault: row.is_default,
    config: row.config,
    secretFields: [],
    health: {
      status: row.health_status,
      ...(row.health_checked_at ? { checkedAt: timestampFromDate(row.health_checked_at) } : {}),
      ...(row.health_latency_ms === null ? {} : { latencyMs: row.health_latency_ms }),
      ...(row.health_detail === null ? {} : { detail: row.health_detail }),
    },
    replicas: usage?.replicas ?? 0n,
    bytes: usage?.bytes ?? 0n,
    version: BigInt(row.version),
    createdAt: timestampFromDate(row.created_at),
    updatedAt: timestampFromDate(row.updated_at),
  };
}
