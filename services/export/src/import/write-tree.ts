import type { ClientBase } from 'pg';
import { rootDirectoryId } from '@stowage/common/ids';
import { stagedTable } from '../document/staged-tables.ts';
import { changesOf, nodeColumns } from './changes.ts';

/**
 * Takes nodes that change, or go, out of each other's way: two that swap their names, or directories that move into each
 * other, would clash on the way. They get a name that nobody can have, and lie under the root until they are written.
 */
export async function parkNodes(client: ClientBase, number: number): Promise<void> {
  await client.query(`
    update catalog.nodes n set name = e'\\x01' || n.id, parent_id = '${rootDirectoryId}'
    from ${changesOf(number, 'nodes')} c join ${stagedTable(number, 'nodes')} s on s.id = c.id
    where n.id = c.id and c.what = 'update' and n.id <> '${rootDirectoryId}'
      and (s.parent_id, s.name, s.deleted_at is null) is distinct from (n.parent_id, n.name, n.deleted_at is null)`);
}

/** Removes, makes and changes nodes; their blobs are there already. */
export async function writeNodes(client: ClientBase, number: number): Promise<void> {
  const [staged, changes] = [stagedTable(number, 'nodes'), changesOf(number, 'nodes')];
  await client.query(`
    delete from catalog.nodes n using ${changes} c where n.id = c.id and c.what = 'remove'`);
  const columns = nodeColumns.join();
  // By directory: most indexes are, so that neighbours meet the same pages.
  await client.query(`
    insert into catalog.nodes (id, ${columns})
    select s.id, ${nodeColumns.map((column) => `s.${column}`).join()}
    from ${staged} s join ${changes} c on c.id = s.id and c.what = 'insert' order by s.parent_id, s.id`);
  await client.query(`
    update catalog.nodes n set (${columns}) = row (${nodeColumns.map((column) => `s.${column}`).join()})
    from ${staged} s join ${changes} c on c.id = s.id and c.what = 'update' where n.id = s.id`);
}
