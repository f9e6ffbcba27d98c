import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import { inTransaction, query } from '@stowage/common/database/transaction';
import { PostponedJob } from '@stowage/common/jobs/job';
import type { ClaimedJob, JsonObject } from '@stowage/common/jobs/job';
import type { Tables } from '../tables.ts';

/** What a full reconcile may do now. */
export type Turn =
  /** Go on from where it was, null for the start. */
  | { kind: 'mine'; position: JsonObject | null }
  /** Another one is at it; `waiting` counts those that want to. */
  | { kind: 'later'; waiting: number }
  /** A run that began after this was asked for did all of it already. */
  | { kind: 'covered'; by: string };

const retryMs = 1_000;

/** More waiting jobs than this are not told apart: those beyond run for themselves. */
const coversMax = 10_000;

/** The one place for a full reconcile to run, with how far it came. A holder that lost its job's lease holds nothing. */
export class RunSlot {
  readonly #db: Kysely<Tables>;

  constructor(db: Kysely<Tables>) {
    this.#db = db;
  }

  async take(job: ClaimedJob): Promise<Turn> {
    return inTransaction(this.#db, async (trx) => {
      const { rows: covering } = await sql<{ job_id: string }>`
        select job_id from placement.reconcile_run where clean and ${job.id} = any(covers)`.execute(trx);
      if (covering[0]) return { kind: 'covered', by: covering[0].job_id };
      // What is pending by now was asked for before this run reads the first policy; not what is to run at a later time, nor
      // what has an admin's word that this run may lack.
      const { rows } = await sql<{ position: JsonObject }>`
        insert into placement.reconcile_run as run (slot, job_id, fence, position, covers, started_at)
        select true, ${job.id}::uuid, ${job.fence}::bigint, '{}', array(
          select id from jobs.jobs where state = 'pending' and kind = 'full_reconcile'
            and not params @> '{"remove_unknown": true}' and (dedupe_key is null or started_at is not null or run_after <= now()) limit ${coversMax}), now()
        on conflict (slot) do update set fence = excluded.fence, job_id = excluded.job_id, clean = false,
          position = case when run.job_id = excluded.job_id then run.position else excluded.position end,
          covers = case when run.job_id = excluded.job_id then run.covers else excluded.covers end,
          started_at = case when run.job_id = excluded.job_id then run.started_at else excluded.started_at end
        where run.job_id = excluded.job_id or not exists (
          select from jobs.jobs j where j.id = run.job_id and j.state = 'running' and j.lease_until > now())
        returning position`.execute(trx);
      const [run] = rows;
      if (run) return { kind: 'mine', position: Object.keys(run.position).length > 0 ? run.position : null };
      const { rows: waiting } = await sql<{ count: string }>`
        select count(*) from jobs.jobs where state = 'pending' and kind = 'full_reconcile'`.execute(trx);
      return { kind: 'later', waiting: Number(waiting[0]?.count ?? 0) };
    });
  }

  /** Keeps how far a run came; `clean` at its end, where nothing failed. Throws PostponedJob where another one runs by now. */
  async keep(job: ClaimedJob, position: JsonObject, clean = false): Promise<void> {
    const { numAffectedRows } = await query(() =>
      sql`
        update placement.reconcile_run set position = ${JSON.stringify(position)}::jsonb, clean = ${clean}
        where job_id = ${job.id} and fence = ${job.fence}`.execute(this.#db),
    );
    if (numAffectedRows !== 1n) throw new PostponedJob(retryMs);
  }
}
