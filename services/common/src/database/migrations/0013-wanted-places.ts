import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** Where files of a class are wanted first of all, for catalog to see whether a new one needs a job to get there. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create view placement.wanted_places as
    select p.file_class, array(
      select b.backend_id from placement.policy_backends b
      where b.file_class = p.file_class and b.position < p.replicas order by b.position) as backend_ids
    from placement.policies p`.execute(db);
  await sql`grant select on placement.wanted_places to stowage_catalog`.execute(db);
}
