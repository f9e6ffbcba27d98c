import { sql } from 'kysely';
import type { RawBuilder } from 'kysely';
import { validationError } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import { ReplicaState } from '@stowage/proto/stowage/catalog/v1/node';
import type { NoteReplicasRequest, ReplicaNote } from '@stowage/proto/stowage/catalog/v1/replica';
import type { Trx } from './nodes.ts';

const notesMax = 1_000;

interface Noted {
  blob_id: string;
  backend_id: string;
}

/** How notes of one state are written down; gives the replicas of which it holds. */
type Write = (trx: Trx, notes: readonly ReplicaNote[]) => Promise<readonly Noted[]>;

const writes = new Map<ReplicaState, Write>([
  [ReplicaState.COPYING, begin],
  [ReplicaState.UNVERIFIED, finish],
  [ReplicaState.AVAILABLE, (trx, notes) => settle(trx, notes, 'available')],
  [ReplicaState.CORRUPT, (trx, notes) => settle(trx, notes, 'corrupt')],
  [ReplicaState.MISSING, (trx, notes) => settle(trx, notes, 'missing')],
]);

/** Notes of many replicas what they are now, one statement a state, and tells of each whether it holds. Throws `validation_failed`. */
export async function noteReplicas(trx: Trx, { notes }: NoteReplicasRequest): Promise<{ accepted: boolean[] }> {
  requireDistinct(notes);
  const holds = new Set<string>();
  for (const [state, write] of writes) {
    const some = notes.filter((note) => note.state === state);
    if (some.length === 0) continue;
    for (const { blob_id: blobId, backend_id: backendId } of await write(trx, some))
      holds.add(nameOf({ blobId, backendId }));
  }
  return { accepted: notes.map((note) => holds.has(nameOf(note))) };
}

/** Before the first byte: whoever removes the blob meanwhile finds the copy. */
async function begin(trx: Trx, notes: readonly ReplicaNote[]): Promise<readonly Noted[]> {
  const keys = notes.map(({ key }) => key);
  const { rows } = await sql<Noted>`
    insert into catalog.replicas as r (blob_id, backend_id, key, state)
    select b.id, names.id, given.key, 'copying'
    from ${placesOf(notes, sql`, ${keys}::text[]`)} as given (blob_id, backend_id, key)
    join catalog.blobs b on b.id = given.blob_id and b.delete_after is null
    join registry.backend_names names on names.id = given.backend_id
    order by b.id, names.id for key share of b
    on conflict (blob_id, backend_id) do update set state = 'copying' where r.state in ('copying', 'corrupt', 'missing')
    returning r.blob_id, r.backend_id`.execute(trx);
  return rows;
}

/** The copy is durable. Repeatable. */
async function finish(trx: Trx, notes: readonly ReplicaNote[]): Promise<readonly Noted[]> {
  const { rows } = await sql<Noted>`
    update catalog.replicas r set state = case when r.state = 'copying' then 'unverified' else r.state end
    from (${locked(notes, sql`('copying', 'unverified', 'available')`)}) l
    where r.blob_id = l.blob_id and r.backend_id = l.backend_id
    returning r.blob_id, r.backend_id`.execute(trx);
  return rows;
}

/** What reading them from end to end showed; `verified_at` stays the time when a reading began that found one good. */
async function settle(
  trx: Trx,
  notes: readonly ReplicaNote[],
  state: 'available' | 'corrupt' | 'missing',
): Promise<readonly Noted[]> {
  const agos = notes.map(({ readAgoMs }) => readAgoMs.toString());
  const states = sql`('available', 'unverified', 'corrupt', 'missing')`;
  await sql`
    update catalog.replicas r set state = ${state},
      verified_at = case when ${state} = 'available'
        then greatest(r.verified_at, now() - l.ago * interval '1 ms') else r.verified_at end
    from (${locked(notes, states, agos)}) l
    where r.blob_id = l.blob_id and r.backend_id = l.backend_id`.execute(trx);
  return notes.map(({ blobId, backendId }) => ({ blob_id: blobId, backend_id: backendId }));
}

/** The replicas that are in one of the states, locked in the order that all take, so that no two wait for each other. */
function locked(
  notes: readonly ReplicaNote[],
  states: RawBuilder<unknown>,
  agos: readonly string[] = [],
): RawBuilder<unknown> {
  return sql`
    select k.blob_id, k.backend_id, given.ago
    from ${placesOf(notes, sql`, ${agos}::bigint[]`)} as given (blob_id, backend_id, ago)
    join catalog.replicas k on k.blob_id = given.blob_id and k.backend_id = given.backend_id
    where k.state in ${states} order by k.blob_id, k.backend_id for update of k`;
}

function placesOf(notes: readonly ReplicaNote[], more: RawBuilder<unknown>): RawBuilder<unknown> {
  const [blobIds, backendIds] = [notes.map(({ blobId }) => blobId), notes.map(({ backendId }) => backendId)];
  return sql`unnest(${blobIds}::uuid[], ${backendIds}::uuid[]${more})`;
}

function requireDistinct(notes: readonly ReplicaNote[]): void {
  const invalid = (detail: string): never => {
    throw validationError([{ pointer: '/notes', detail }]);
  };
  if (notes.length > notesMax) invalid(`must be at most ${notesMax}`);
  if (new Set(notes.map(nameOf)).size < notes.length) invalid('must name each replica once');
  if (!notes.every(({ blobId, backendId }) => isId(blobId) && isId(backendId))) invalid('must name replicas by ids');
  if (!notes.every(({ state }) => writes.has(state))) invalid('must each have a state that can be noted');
}

function nameOf({ blobId, backendId }: Pick<ReplicaNote, 'blobId' | 'backendId'>): string {
  return `${blobId} ${backendId}`;
}
