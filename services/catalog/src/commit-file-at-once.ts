import { depthMax } from '@stowage/common/tree-limits';
import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { isRetryable, violatedConstraint } from '@stowage/common/database/database-error';
import { isId, rootDirectoryId } from '@stowage/common/ids';
import { outboxInsert } from '@stowage/common/jobs/outbox';
import { normalizeName } from '@stowage/common/names';
import type { CallContext } from '@stowage/common/rpc/context';
import type { Blob, CommitFileRequest, CommitFileResponseSchema } from '@stowage/proto/stowage/catalog/v1/content';
import { backendsOf, checkContent } from './commit-file.ts';
import { causeOf, eventData } from './file-events.ts';
import { nodeMessage } from './node-message.ts';
import { nodeColumns, wayUp } from './nodes.ts';
import type { NodeRow } from './nodes.ts';
import { childStanding } from './standing.ts';
import { liesAsWanted } from './wanted-places.ts';

type CommittedRow = NodeRow & { names: string[] | null; depth: number };

/**
 * What commitFile does, as one statement that is a transaction of its own: one round trip where commitFile takes eight.
 * Only for the common case. Null, and nothing was changed, where anything is in the way, from a name that is taken to a
 * file that was committed before: commitFile tells what it is.
 */
export async function commitFileAtOnce(
  db: QueryExecutorProvider,
  context: CallContext,
  request: CommitFileRequest,
): Promise<MessageInitShape<typeof CommitFileResponseSchema> | null> {
  const blob = checkContent(request);
  if (!isId(request.directoryId)) return null;
  const row = await insertAll(db, context, request, blob);
  if (!row) return null;
  const parent = { path: `/${row.names?.join('/') ?? ''}`, parentId: null, depth: row.depth, entry: null };
  const standing = childStanding(request.directoryId, parent, row.name);
  return { file: nodeMessage({ row, standing }), created: true };
}

async function insertAll(
  db: QueryExecutorProvider,
  context: CallContext,
  request: CommitFileRequest,
  blob: Blob,
): Promise<CommittedRow | undefined> {
  const { fileId, directoryId, mediaType, fileClass } = request;
  const name = normalizeName(request.name);
  const sha256 = Buffer.from(blob.sha256);
  const event = { id: fileId, kind: 'file', parent_id: directoryId, name } as const;
  const backends = backendsOf(request.replicas);
  const keys = request.replicas.map((replica) => replica.key);
  // Foreign keys are checked when the statement ends, so the node may be the first to be made.
  const statement = sql<CommittedRow>`
    with recursive seed as materialized (
      select id from catalog.nodes where id = ${directoryId} and kind = 'directory' for key share
    ), up as (${wayUp}), place as (
      select array_agg(name order by steps desc) filter (where id <> ${rootDirectoryId}) as names, max(steps) - 1 as depth
      from up having bool_and(deleted_at is null and purged_at is null) and bool_or(id = ${rootDirectoryId})
    ), node as (
      insert into catalog.nodes as n (id, parent_id, kind, name, blob_id, size, media_type, file_class)
      select ${fileId}::uuid, ${directoryId}::uuid, 'file', ${name}::text, ${blob.id}::uuid, ${blob.size}::bigint,
        ${mediaType}::text, ${fileClass}::text
      from place where place.depth < ${depthMax} and not exists (select from catalog.blobs where id = ${blob.id})
        and ${liesAsWanted(fileClass, backends)}
      on conflict (parent_id, name) where deleted_at is null do nothing
      returning ${nodeColumns}
    ), blob as (
      insert into catalog.blobs (id, size, sha256, chunk_crc32c)
      select ${blob.id}::uuid, ${blob.size}::bigint, ${sha256}::bytea, ${Buffer.from(blob.chunkCrc32c)}::bytea from node
    ), replicas as (
      insert into catalog.replicas (blob_id, backend_id, key, state, verified_at)
      select ${blob.id}::uuid, backend_id, key, 'available', now()
      from node, unnest(${backends}::uuid[], ${keys}::text[]) as sealed (backend_id, key)
    ), event as (
      ${outboxInsert('stowage.files.created', eventData(causeOf(context), event), sql`from node`)}
    )
    select node.*, ${sha256}::bytea as sha256, place.names, place.depth from node, place`;
  try {
    const { rows } = await statement.execute(db);
    return rows[0];
  } catch (error) {
    if (violatedConstraint(error) === null && !isRetryable(error)) throw error;
    return undefined;
  }
}
