import { Kysely, PostgresDialect } from 'kysely';
import type { ClientBase } from 'pg';

/** A query builder whose statements are part of whatever transaction a connection is in. */
export function overClient(client: ClientBase): Kysely<unknown> {
  const borrowed = {
    query: client.query.bind(client),
    release: () => undefined,
  };
  const pool = { connect: async () => borrowed, end: async () => undefined, options: {} };
  return new Kysely<unknown>({ dialect: new PostgresDialect({ pool }) });
}
