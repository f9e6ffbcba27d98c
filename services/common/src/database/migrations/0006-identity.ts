import { sql } from 'kysely';
import type { Kysely } from 'kysely';

export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`create schema identity`.execute(db);
  await sql`
    create table identity.users (
      id uuid primary key,
      username text collate "C" not null constraint users_username_key unique,
      password_hash text not null,
      role text not null check (role in ('viewer', 'editor', 'admin')),
      disabled boolean not null default false,
      created_at timestamptz(3) not null default now(),
      updated_at timestamptz(3) not null default now()
    )`.execute(db);
  await sql`
    create table identity.sessions (
      id uuid primary key,
      token_hash bytea not null unique,
      user_id uuid not null references identity.users (id) on delete cascade,
      created_at timestamptz(3) not null default now(),
      last_used_at timestamptz(3) not null default now()
    )`.execute(db);
  await sql`create index sessions_user_id_idx on identity.sessions (user_id)`.execute(db);
  await sql`create index sessions_last_used_at_idx on identity.sessions (last_used_at)`.execute(db);
  await sql`
    create table identity.login_attempts (
      key text primary key,
      attempts integer not null,
      window_started_at timestamptz(3) not null
    )`.execute(db);
  await sql`
    create table identity.system_mode (
      only_row boolean primary key default true check (only_row),
      mode text not null check (mode in ('normal', 'read_only')),
      changed_at timestamptz(3) not null default now()
    )`.execute(db);
  await sql`insert into identity.system_mode (mode) values ('normal')`.execute(db);
  await sql`grant usage on schema identity to stowage_gateway`.execute(db);
  await sql`grant select, insert, update, delete on all tables in schema identity to stowage_gateway`.execute(db);
}
