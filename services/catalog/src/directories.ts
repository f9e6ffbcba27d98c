import { sql } from 'kysely';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { newId } from '@stowage/common/ids';
import { normalizeName } from '@stowage/common/names';
import type { CallContext } from '@stowage/common/rpc/context';
import type { CreateDirectoryRequest, CreateDirectoryResponseSchema } from '@stowage/proto/stowage/catalog/v1/tree';
import { announce, causeOf } from './file-events.ts';
import { takeName } from './free-name.ts';
import { nodeMessage } from './node-message.ts';
import { lockDestination, nodeColumns } from './nodes.ts';
import type { NodeRow, Trx } from './nodes.ts';
import { childStanding } from './standing.ts';

/** Makes a directory. Throws `validation_failed`, `not_found`, `state_conflict`, `name_conflict`. */
export async function createDirectory(
  trx: Trx,
  context: CallContext,
  request: CreateDirectoryRequest,
): Promise<MessageInitShape<typeof CreateDirectoryResponseSchema>> {
  const { parentId, onConflict } = request;
  const name = normalizeName(request.name);
  const parent = await lockDestination(trx, parentId, '/parent_id');
  const id = newId();
  const row = await takeName(trx, { parentId, name, onConflict, nodeId: id }, (free) =>
    insert(trx, id, parentId, free),
  );
  await announce(trx, causeOf(context), 'created', { id, kind: 'directory', parent_id: parentId, name: row.name });
  return { node: nodeMessage({ row, standing: childStanding(parentId, parent.standing, row.name) }) };
}

async function insert(trx: Trx, id: string, parentId: string, name: string): Promise<NodeRow | null> {
  const { rows } = await sql<NodeRow>`
    insert into catalog.nodes as n (id, parent_id, kind, name) values (${id}, ${parentId}, 'directory', ${name})
    on conflict (parent_id, name) where deleted_at is null do nothing
    returning ${nodeColumns}, null::bytea as sha256`.execute(trx);
  return rows[0] ?? null;
}
