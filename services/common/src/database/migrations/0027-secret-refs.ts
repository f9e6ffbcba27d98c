import { sql } from 'kysely';
import type { Kysely } from 'kysely';

/** A secret of a backend may lie in a Kubernetes Secret: then its row names that, and nothing is sealed. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table registry.backend_secrets
      add column ref_name text,
      add column ref_key text,
      alter column key_id drop not null,
      alter column nonce drop not null,
      alter column sealed drop not null,
      add constraint backend_secrets_one_kind check (
        num_nonnulls(key_id, nonce, sealed) = case when ref_name is null then 3 else 0 end
        and (ref_name is null) = (ref_key is null))`.execute(db);
  await sql`
    create index backend_secrets_ref_name_idx on registry.backend_secrets (ref_name)
    where ref_name is not null`.execute(db);
}
