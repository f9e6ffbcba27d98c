import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** Where files of a class are wanted by what can be done with backends now, for catalog to tell whether a file lies there. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create or replace view placement.wanted_places as
    select p.file_class, array(
      select b.backend_id from placement.policy_backends b join registry.backend_standing s on s.id = b.backend_id
      where b.file_class = p.file_class and s.enabled order by b.position limit p.replicas) as backend_ids,
      array(
      select b.backend_id from placement.policy_backends b join registry.backend_standing s on s.id = b.backend_id
      where b.file_class = p.file_class and s.enabled and s.health_status <> 'unhealthy'
      order by b.position limit p.replicas) as usable_ids,
      p.replicas
    from placement.policies p`.execute(db);
  await sql`grant select on registry.backend_standing to stowage_catalog`.execute(db);
}
