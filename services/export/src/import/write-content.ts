import type { ClientBase } from 'pg';
import { stagedTable } from '../document/staged-tables.ts';
import { blobColumns, changesOf } from './changes.ts';

/** Forgets replicas that the document lacks. Before their blobs change: the kept counts go by a blob's size. */
export async function removeReplicas(client: ClientBase, number: number): Promise<void> {
  await client.query(`
    delete from catalog.replicas r using ${changesOf(number, 'replicas')} c
    where r.blob_id = c.blob_id and r.backend_id = c.backend_id and c.what in ('remove', 'replace')`);
}

/** Makes and changes blobs. */
export async function writeBlobs(client: ClientBase, number: number): Promise<void> {
  const [staged, changes] = [stagedTable(number, 'blobs'), changesOf(number, 'blobs')];
  const columns = blobColumns.join();
  const values = blobColumns.map((column) => `s.${column}`).join();
  await client.query(`
    insert into catalog.blobs (id, ${columns})
    select s.id, ${values} from ${staged} s join ${changes} c on c.id = s.id and c.what = 'insert' order by s.id`);
  await client.query(`
    update catalog.blobs b set (${columns}) = row (${values})
    from ${staged} s join ${changes} c on c.id = s.id and c.what = 'update' where b.id = s.id`);
}

/** Makes and changes replicas; their blobs and backends are there already. */
export async function writeReplicas(client: ClientBase, number: number): Promise<void> {
  const changes = changesOf(number, 'replicas');
  await client.query(`
    insert into catalog.replicas (blob_id, backend_id, key, state, created_at)
    select blob_id, backend_id, key, state, created_at from ${changes}
    where what in ('insert', 'replace') order by blob_id, backend_id`);
  await client.query(`
    update catalog.replicas r
    set key = c.key, state = c.state, created_at = c.created_at, verified_at = null, removing_since = null
    from ${changes} c where r.blob_id = c.blob_id and r.backend_id = c.backend_id and c.what = 'update'`);
}

/** Removes blobs that nothing refers to any more. Their content stays where it is. */
export async function removeBlobs(client: ClientBase, number: number): Promise<void> {
  await client.query(`
    delete from catalog.blobs b using ${changesOf(number, 'blobs')} c where b.id = c.id and c.what = 'remove'`);
}
