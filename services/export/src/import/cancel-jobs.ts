import { sql } from 'kysely';
import type { QueryExecutorProvider, RawBuilder } from 'kysely';
import { jobEventsInsert } from '@stowage/common/jobs/outbox';

/**
 * Cancels jobs that have become pointless, by the metadata as they are now: those that wait and are about a blob or a
 * backend that is gone, or would compare a blob with a hash that is not its own any more. Removals by an admin's word
 * end too, also those under way: it was given for what was before.
 */
export async function cancelJobs(trx: QueryExecutorProvider): Promise<void> {
  await sql`
    with cancelled as (
      update jobs.jobs j set state = 'cancelled', finished_at = now(), lease_until = null, lease_holder = null,
        fence = fence + 1, dedupe_key = null
      where (state = 'pending' and (
          (kind = 'place_blob' and not ${blobExists})
          or (kind = 'remove_blob' and params ? 'blob_id' and not ${blobExists})
          or (kind = 'verify_blob' and not ${replicaExists})
          or (kind in ('health_check', 'sweep') and not ${backendExists})))
        or (state in ('pending', 'running') and (
          (kind = 'remove_blob' and params @> '{"despite_hold": true}')
          or (kind = 'full_reconcile' and params @> '{"remove_unknown": true}')))
      returning id, kind, state, attempt, traceparent
    ), event as (${jobEventsInsert(sql`cancelled`)})
    select from cancelled`.execute(trx);
}

/** A parameter as an id; null for what is none, so that one odd job is in nobody's way. */
function idParam(name: string): RawBuilder<unknown> {
  return sql`case when j.params ->> ${name}::text ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
    then (j.params ->> ${name}::text)::uuid end`;
}

const blobExists = sql`exists (select from catalog.blobs b where b.id = ${idParam('blob_id')})`;
const backendExists = sql`exists (select from registry.backends b where b.id = ${idParam('backend_id')})`;
const replicaExists = sql`exists (
  select from catalog.replicas r join catalog.blobs b on b.id = r.blob_id
  where r.blob_id = ${idParam('blob_id')} and r.backend_id = ${idParam('backend_id')}
    and encode(b.sha256, 'hex') = j.params ->> 'sha256')`;
