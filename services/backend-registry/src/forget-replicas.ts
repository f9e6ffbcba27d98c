import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import type { Client } from '@stowage/common/rpc/contract';
import type { CallContext } from '@stowage/common/rpc/context';
import type {
  ForgetReplicasRequest,
  ForgetReplicasResponseSchema,
} from '@stowage/proto/stowage/backend_registry/v1/backend';
import type { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import { findBackend, noBackend } from './backend-row.ts';
import { holdingsOf } from './delete-blockers.ts';
import type { Tables } from './tables.ts';

/** After so long no further page is begun: the client asks again. */
const enoughMs = 20_000;

interface Needs {
  db: Kysely<Tables>;
  content: Client<typeof ContentService>;
}

/** Drops what is known of the replicas on a disabled backend. Errors as ForgetReplicas says. */
export async function forgetReplicas(
  { db, content }: Needs,
  { id, acceptLoss }: ForgetReplicasRequest,
  context: CallContext,
): Promise<MessageInitShape<typeof ForgetReplicasResponseSchema>> {
  const row = await findBackend(db, id);
  const { enabled, asked_at: askedAt } = await standing(db, row.id);
  if (enabled) {
    throw new AppError('state_conflict', 'Disable the backend first, so that nothing new goes there.');
  }
  // It may be enabled at any moment from now on: what is put there then is not lost.
  const madeBefore = timestampFromDate(askedAt);
  const until = performance.now() + enoughMs;
  const sum = { forgotten: 0n, lost: 0n };
  let [more, first] = [true, true];
  while (more && performance.now() < until) {
    const page = await content.forgetBackendReplicas({ backendId: id, acceptLoss, first, madeBefore }, context);
    first = false;
    sum.forgotten += page.forgotten;
    sum.lost += page.lost;
    more = page.more;
  }
  const { replicas } = await query(() => holdingsOf(db, id));
  return { ...sum, remaining: BigInt(replicas) };
}

/** By the clock of the database, of one moment. */
async function standing(db: Kysely<Tables>, id: string): Promise<{ enabled: boolean; asked_at: Date }> {
  const { rows } = await query(() =>
    sql<{ enabled: boolean; asked_at: Date }>`
      select enabled, date_trunc('milliseconds', now()) as asked_at from registry.backends where id = ${id}`.execute(
      db,
    ),
  );
  return rows[0] ?? noBackend();
}
