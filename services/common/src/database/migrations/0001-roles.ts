import { sql } from 'kysely';
import type { Kysely } from 'kysely';

const services = ['gateway', 'catalog', 'upload', 'backend_registry', 'placement', 'export'];

/** One role a service, so that each can write its own schema only. Roles belong to the cluster, hence "if missing". */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const service of services) {
    const role = `stowage_${service}`;
    await sql`
      do ${sql.lit(`
        begin
          if not exists (select from pg_roles where rolname = '${role}') then
            create role ${role} nologin;
          end if;
          if not pg_has_role(current_user, '${role}', 'member') then
            execute format('grant ${role} to %I', current_user);
          end if;
        exception when duplicate_object or unique_violation then null;
        end`)}`.execute(db);
  }
  const grantees = sql.raw(services.map((service) => `stowage_${service}`).join(', '));
  await sql`grant select on public.kysely_migration to ${grantees}`.execute(db);
}
