import { sql } from 'kysely';
import { AppError } from '@stowage/common/errors';
import { RetryTransaction, violatedConstraint } from '@stowage/common/database/database-error';
import { OnConflict } from '@stowage/proto/stowage/catalog/v1/node';
import { nextFreeName } from './names.ts';
import type { Kind, Trx } from './nodes.ts';

/** A name wanted in a directory. */
export interface WantedName {
  parentId: string;
  name: string;
  onConflict: OnConflict;
  /** The node that is to have the name; its own present name does not stand in its way. */
  nodeId: string;
}

/** After how many names `rename` gives up. */
const namesMax = 10_000;

/** How many candidates one query looks at: few at first, as the second name is mostly free. */
const batchSizes = [8, 64, 512];

/** How often a name may be snatched away between being chosen and being taken. */
const attempts = 64;

/**
 * Gives a node the wanted name, or with `rename` the next free one: `take` writes it and answers null where the
 * unique index refuses. Throws `name_conflict`.
 */
export async function takeName<R>(trx: Trx, wanted: WantedName, take: (name: string) => Promise<R | null>): Promise<R> {
  let name = wanted.name;
  for (let attempt = 0; attempt < attempts; attempt += 1) {
    const taken = await take(name);
    if (taken !== null) return taken;
    if (wanted.onConflict !== OnConflict.RENAME) throw await nameConflict(trx, wanted);
    name = await findFreeName(trx, wanted);
  }
  throw new RetryTransaction();
}

/** Runs an update that gives a row a name; null, and the transaction goes on, where the name is taken. */
export async function unlessTaken<R>(trx: Trx, update: () => Promise<R>): Promise<R | null> {
  await sql`savepoint take_name`.execute(trx);
  try {
    const result = await update();
    await sql`release savepoint take_name`.execute(trx);
    return result;
  } catch (error) {
    if (violatedConstraint(error) !== 'nodes_name_key') throw error;
    await sql`rollback to savepoint take_name`.execute(trx);
    return null;
  }
}

async function findFreeName(trx: Trx, wanted: WantedName): Promise<string> {
  let first = 2;
  for (let batch = 0; first <= namesMax; batch += 1) {
    const size = Math.min(batchSizes[batch] ?? 2_048, namesMax - first + 1);
    const names = Array.from({ length: size }, (_, index) => nextFreeName(wanted.name, first + index));
    const { rows } = await sql<{ name: string }>`
      select name from catalog.nodes
      where parent_id = ${wanted.parentId} and name = any(${names}::text[]) and deleted_at is null
        and id <> ${wanted.nodeId}`.execute(trx);
    const taken = new Set(rows.map((row) => row.name));
    const free = names.find((name) => !taken.has(name));
    if (free !== undefined) return free;
    first += size;
  }
  throw await nameConflict(trx, wanted);
}

/** The error that names who has the name; asks for another try where nobody has it any more. */
async function nameConflict(trx: Trx, wanted: WantedName): Promise<Error> {
  const { rows } = await sql<{ id: string; kind: Kind }>`
    select id, kind from catalog.nodes
    where parent_id = ${wanted.parentId} and name = ${wanted.name} and deleted_at is null`.execute(trx);
  const holder = rows[0];
  if (!holder) return new RetryTransaction();
  const members = { conflicting_id: holder.id, conflicting_kind: holder.kind, name: wanted.name };
  return new AppError('name_conflict', `There is a ${holder.kind} with this name: choose another name.`, { members });
}
