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
import type { Kysely } from 'kysely';
import { findBackend } from './backend-row.ts';
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
  if (row.enabled) {
    throw new AppError('state_conflict', 'Disable the backend first, so that nothing new goes there.');
  }
  const until = performance.now() + enoughMs;
  const sum = { forgotten: 0n, lost: 0n };
  let [more, first] = [true, true];
  while (more && performance.now() < until) {
    const page = await content.forgetBackendReplicas({ backendId: id, acceptLoss, first }, context);
    first = false;
    sum.forgotten += page.forgotten;
    sum.lost += page.lost;
    more = page.more;
  }
  const { replicas } = await query(() => holdingsOf(db, id));
  return { ...sum, remaining: BigInt(replicas) };
}
