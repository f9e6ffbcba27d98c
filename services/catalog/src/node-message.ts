import type { MessageInitShape } from '@bufbuild/protobuf';
import { NodeKind } from '@stowage/proto/stowage/catalog/v1/node';
import type { NodeSchema } from '@stowage/proto/stowage/catalog/v1/node';
import type { KnownNode, NodeRow } from './nodes.ts';

/** The node as other services see it. */
export function nodeMessage({ row, standing }: KnownNode): MessageInitShape<typeof NodeSchema> {
  const file = row.kind === 'file' ? { file: fileFacts(row) } : {};
  const bin = standing.entry
    ? { deletedAt: timestamp(standing.entry.deletedAt), purgeAt: timestamp(standing.entry.purgeAt) }
    : {};
  return {
    id: row.id,
    kind: row.kind === 'file' ? NodeKind.FILE : NodeKind.DIRECTORY,
    ...(standing.parentId === null ? {} : { parentId: standing.parentId }),
    name: row.name,
    path: standing.path,
    recycled: standing.entry !== null,
    version: BigInt(row.version),
    createdAt: timestamp(row.created_at),
    updatedAt: timestamp(row.updated_at),
    ...bin,
    ...file,
  };
}

function fileFacts(row: NodeRow): { size: bigint; mediaType: string; fileClass: string; sha256: Uint8Array } {
  return {
    size: BigInt(row.size ?? 0),
    mediaType: row.media_type ?? '',
    fileClass: row.file_class ?? '',
    sha256: row.sha256 ?? new Uint8Array(),
  };
}

/** A time as protobuf carries it. */
export function timestamp(date: Date): { seconds: bigint; nanos: number } {
  const ms = date.getTime();
  const seconds = Math.floor(ms / 1_000);
  return { seconds: BigInt(seconds), nanos: (ms - seconds * 1_000) * 1_000_000 };
}
