import { sql } from 'kysely';
import type { Kysely, QueryExecutorProvider } from 'kysely';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { inTransaction, query } from '@stowage/common/database/transaction';
import { AppError, unavailable } from '@stowage/common/errors';
import type { PolicySchema } from '@stowage/proto/stowage/placement/v1/policy';
import type { Tables } from './tables.ts';

/** The policy of every class that has none of its own. */
export const defaultClass = 'default';

export interface Policy {
  fileClass: string;
  /** In order of preference. */
  backendIds: string[];
  replicas: number;
  syncReplicas: number;
  version: bigint;
  updatedAt: Date;
}

interface PolicyRow {
  file_class: string;
  replicas: number;
  sync_replicas: number;
  version: string;
  updated_at: Date;
  backend_ids: string[];
}

const columns = sql`p.file_class, p.replicas, p.sync_replicas, p.version, p.updated_at,
  array(select b.backend_id::text from placement.policy_backends b where b.file_class = p.file_class order by b.position) as backend_ids`;

/** Finds the policy in force for a class. Throws `unavailable` until the default one was made: as soon as there is a default backend. */
export async function findPolicy(db: QueryExecutorProvider, fileClass: string): Promise<Policy> {
  const { rows } = await query(() =>
    sql<PolicyRow>`
      select ${columns} from placement.policies p where p.file_class in (${fileClass}, ${defaultClass})
      order by (p.file_class = ${fileClass}) desc limit 1`.execute(db),
  );
  const row = rows[0];
  if (!row)
    throw unavailable('There is no default backend yet, so nobody knows where files go: an admin has to make one.');
  return policyOf(row);
}

/** Reads the policy that a class has of its own. Throws `not_found`. */
export async function ownPolicy(db: QueryExecutorProvider, fileClass: string): Promise<Policy> {
  const { rows } = await query(() =>
    sql<PolicyRow>`select ${columns} from placement.policies p where p.file_class = ${fileClass}`.execute(db),
  );
  const row = rows[0];
  if (!row) throw noPolicy();
  return policyOf(row);
}

/** Reads all policies, by class. */
export async function listPolicies(db: QueryExecutorProvider): Promise<Policy[]> {
  const { rows } = await query(() =>
    sql<PolicyRow>`select ${columns} from placement.policies p order by p.file_class`.execute(db),
  );
  return rows.map(policyOf);
}

export function noPolicy(): AppError {
  return new AppError('not_found', 'This file class has no policy of its own.');
}

export function policyMessage({ updatedAt, ...policy }: Policy): MessageInitShape<typeof PolicySchema> {
  return { ...policy, updatedAt: timestampFromDate(updatedAt) };
}

function policyOf(row: PolicyRow): Policy {
  return {
    fileClass: row.file_class,
    backendIds: row.backend_ids,
    replicas: row.replicas,
    syncReplicas: row.sync_replicas,
    version: BigInt(row.version),
    updatedAt: row.updated_at,
  };
}

export async function hasDefaultPolicy(db: Kysely<Tables>): Promise<boolean> {
  const row = await query(() =>
    db.selectFrom('placement.policies').select('version').where('file_class', '=', defaultClass).executeTakeFirst(),
  );
  return row !== undefined;
}

/** Makes the policy `default`, one replica on the default backend, where there is none. May run in many replicas at once. */
export async function ensureDefaultPolicy(db: Kysely<Tables>, backendId: string): Promise<void> {
  await inTransaction(db, async (trx) => {
    const made = await trx
      .insertInto('placement.policies')
      .values({ file_class: defaultClass, replicas: 1 })
      .onConflict((conflict) => conflict.doNothing())
      .returning('file_class')
      .executeTakeFirst();
    if (!made) return;
    await trx
      .insertInto('placement.policy_backends')
      .values({ file_class: defaultClass, position: 0, backend_id: backendId })
      .execute();
  });
}
