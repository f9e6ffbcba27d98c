import type { ClientBase } from 'pg';
import { stagedTable } from '../document/staged-tables.ts';
import { changesOf } from './changes.ts';

/**
 * Makes and changes backends; those that go stay until nothing refers to them. One that lies where it lay keeps its secrets
 * and its health. Any other comes in disabled, with no secrets: nothing that is known may be sent to a place that a
 * document names. Every process is told, once this commits, to look at them anew.
 */
export async function writeBackends(client: ClientBase, number: number): Promise<void> {
  const [staged, changes] = [stagedTable(number, 'backends'), changesOf(number, 'backends')];
  // Waits for whoever is about to refer to one, and keeps others from it.
  await client.query(`
    select from registry.backends b join ${changes} c on c.id = b.id order by b.id for update of b`);
  await client.query(`
    update registry.backends b set name = e'\\x01' || b.id, is_default = false
    from ${changes} c where c.id = b.id`);
  await client.query(`
    delete from registry.backend_secrets where backend_id in (select id from ${changes} where moved)`);
  await client.query(`
    insert into registry.backends (id, name, type, enabled, is_default, config, marked, version, created_at, updated_at)
    select s.id, s.name, s.type, false, s.is_default, s.config, s.marked, s.version, s.created_at, s.updated_at
    from ${staged} s join ${changes} c on c.id = s.id and c.what = 'insert'`);
  // A version beyond the live one: what was begun on that of before must not fit by chance.
  await client.query(`
    update registry.backends b set name = s.name, type = s.type, is_default = s.is_default, config = s.config,
      enabled = s.enabled and not c.moved,
      marked = s.marked or (b.marked and not c.moved),
      version = greatest(b.version + 1, s.version), created_at = s.created_at, updated_at = s.updated_at,
      secrets_version = b.secrets_version + c.moved::integer,
      health_status = case when c.moved then 'unknown' else b.health_status end,
      health_checked_at = case when c.moved then null else b.health_checked_at end,
      health_latency_ms = case when c.moved then null else b.health_latency_ms end,
      health_detail = case when c.moved then null else b.health_detail end,
      health_step = case when c.moved then null else b.health_step end,
      health_failures = case when c.moved then 0 else b.health_failures end,
      health_successes = case when c.moved then 0 else b.health_successes end
    from ${staged} s join ${changes} c on c.id = s.id and c.what = 'update' where b.id = s.id`);
  await client.query(`select pg_notify('stowage_backends', id::text) from ${changes}`);
}

/** Removes backends that the document lacks, and with each what is only about it. */
export async function removeBackends(client: ClientBase, number: number): Promise<void> {
  await client.query(`
    delete from registry.backends b using ${changesOf(number, 'backends')} c where b.id = c.id and c.what = 'remove'`);
}
