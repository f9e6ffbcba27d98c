import type { ClientBase } from 'pg';
import { stagedTable } from '../document/staged-tables.ts';
import { changesOf, policyColumns } from './changes.ts';

/** Removes, makes and changes policies; the backends that they name are there already. */
export async function writePolicies(client: ClientBase, number: number): Promise<void> {
  const [staged, changes] = [stagedTable(number, 'policies'), changesOf(number, 'policies')];
  await client.query(`
    delete from placement.policy_backends where file_class in (select file_class from ${changes})`);
  await client.query(`
    delete from placement.policies where file_class in (select file_class from ${changes} where what = 'remove')`);
  const columns = policyColumns.join();
  await client.query(`
    insert into placement.policies (file_class, ${columns})
    select s.file_class, ${policyColumns.map((column) => `s.${column}`).join()}
    from ${staged} s join ${changes} c on c.file_class = s.file_class
    on conflict (file_class) do update set (${columns}) = row (${policyColumns.map((name) => `excluded.${name}`).join()})`);
  await client.query(`
    insert into placement.policy_backends (file_class, position, backend_id)
    select s.file_class, place - 1, backend_id
    from ${staged} s join ${changes} c on c.file_class = s.file_class,
      unnest(s.backends) with ordinality as named (backend_id, place)`);
}
