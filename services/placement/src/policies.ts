import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import { inTransaction, query } from '@stowage/common/database/transaction';
import { unavailable } from '@stowage/common/errors';
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
}

interface PolicyRow {
  file_class: string;
  replicas: number;
  sync_replicas: number;
  version: string;
  backend_ids: string[];
}

/** Finds the policy in force for a class. Throws `unavailable` until the default one was made, right after the first start. */
export async function findPolicy(db: Kysely<Tables>, fileClass: string): Promise<Policy> {
  const { rows } = await query(() =>
    sql<PolicyRow>`
      select p.file_class, p.replicas, p.sync_replicas, p.version,
        array(select b.backend_id::text from placement.policy_backends b where b.file_class = p.file_class order by b.position) as backend_ids
      from placement.policies p where p.file_class in (${fileClass}, ${defaultClass})
      order by (p.file_class = ${fileClass}) desc limit 1`.execute(db),
  );
  const row = rows[0];
  if (!row) throw unavailable('The first start is not finished yet.');
  return {
    fileClass: row.file_class,
    backendIds: row.backend_ids,
    replicas: row.replicas,
    syncReplicas: row.sync_replicas,
    version: BigInt(row.version),
  };
}

export async function hasDefaultPolicy(db: Kysely<Tables>): Promise<boolean> {
  const row = await query(() =>
    db.selectFrom('placement.policies').select('version').where('file_class', '=', defaultClass).executeTakeFirst(),
  );
  return row !== undefined;
}

/** Makes the policy `default`, one replica on the default local backend, where there is none. May run in many replicas at once. */
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
