import { timestampDate } from '@bufbuild/protobuf/wkt';
import type { Timestamp } from '@bufbuild/protobuf/wkt';
import { rootDirectoryId } from '@stowage/common/ids';
import {
  NodeKind,
  OnConflict as OnConflictEnum,
  PlacementState,
  ReplicaState,
} from '@stowage/proto/stowage/catalog/v1/node';
import type { Node, Placement } from '@stowage/proto/stowage/catalog/v1/node';
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { FileClass, Id, Nullable, Sha256, Time } from '../http/schemas.ts';

const State = Type.Union([Type.Literal('active'), Type.Literal('recycled')]);

const common = {
  name: Type.String(),
  path: Type.String({ description: 'For people; for the root `/`.', examples: ['/photos/2026'] }),
  state: State,
  version: Type.Integer(),
  created_at: Time,
  updated_at: Time,
  deleted_at: Nullable(Time),
  purge_at: Nullable(Time),
};

export const Directory = Type.Object(
  { kind: Type.Literal('directory'), id: Id, parent_id: Nullable(Id), ...common },
  { title: 'Directory' },
);

const Replica = Type.Object({
  backend_id: Id,
  backend_name: Type.String(),
  state: Type.Union([
    Type.Literal('available'),
    Type.Literal('unverified'),
    Type.Literal('copying'),
    Type.Literal('corrupt'),
    Type.Literal('missing'),
    Type.Literal('removing'),
  ]),
  verified_at: Nullable(Time),
});

const PlacementSchema = Type.Object({
  state: Type.Union(
    [Type.Literal('satisfied'), Type.Literal('converging'), Type.Literal('degraded'), Type.Literal('lost')],
    {
      description:
        '`satisfied`: a good copy is on each backend that the policy wants it on. `converging`: jobs see to that. `degraded`: too few good copies are on enabled, healthy backends, and jobs alone may not mend it. `lost`: no copy is left that could be read.',
    },
  ),
  replicas: Type.Array(Replica),
});

const fileFields = {
  kind: Type.Literal('file'),
  id: Id,
  directory_id: Nullable(Id),
  ...common,
  size: Type.Integer({ description: 'In bytes.' }),
  media_type: Type.String({ examples: ['image/png'] }),
  file_class: FileClass,
  sha256: Sha256,
};

export const File = Type.Object(fileFields, { title: 'File' });
export const FileWithPlacement = Type.Object(
  { ...fileFields, placement: PlacementSchema },
  { title: 'FileWithPlacement' },
);
export const AnyNode = Type.Union([Directory, File], { title: 'Node' });

export function toDirectory(node: Node): Static<typeof Directory> {
  return { kind: 'directory', parent_id: node.parentId ?? null, ...commonOf(node) };
}

export function toFile(node: Node): Static<typeof File> {
  if (!node.file) throw new Error(`node ${node.id} is no file`);
  return {
    kind: 'file',
    directory_id: node.parentId ?? null,
    ...commonOf(node),
    size: Number(node.file.size),
    media_type: node.file.mediaType,
    file_class: node.file.fileClass,
    sha256: Buffer.from(node.file.sha256).toString('hex'),
  };
}

export function toNode(node: Node): Static<typeof AnyNode> {
  return node.kind === NodeKind.FILE ? toFile(node) : toDirectory(node);
}

const placementStates = {
  [PlacementState.SATISFIED]: 'satisfied',
  [PlacementState.CONVERGING]: 'converging',
  [PlacementState.DEGRADED]: 'degraded',
  [PlacementState.LOST]: 'lost',
} as const;

const replicaStates = {
  [ReplicaState.AVAILABLE]: 'available',
  [ReplicaState.UNVERIFIED]: 'unverified',
  [ReplicaState.COPYING]: 'copying',
  [ReplicaState.CORRUPT]: 'corrupt',
  [ReplicaState.MISSING]: 'missing',
  [ReplicaState.REMOVING]: 'removing',
} as const;

export function toPlacement(placement: Placement): Static<typeof PlacementSchema> {
  return {
    state: nameOf(placementStates, placement.state),
    replicas: placement.replicas.map((replica) => ({
      backend_id: replica.backendId,
      backend_name: replica.backendName,
      state: nameOf(replicaStates, replica.state),
      verified_at: timeOrNull(replica.verifiedAt),
    })),
  };
}

/** The alias `root`, resolved. */
export function directoryIdOf(id: string): string {
  return id === 'root' ? rootDirectoryId : id;
}

export function onConflictOf(value: 'fail' | 'rename' | undefined): OnConflictEnum {
  return value === 'rename' ? OnConflictEnum.RENAME : OnConflictEnum.FAIL;
}

/** RFC 3339 with milliseconds; a time that must be there. */
export function timeOf(timestamp: Timestamp | undefined): string {
  if (!timestamp) throw new Error('a message lacks a time that it must have');
  return timestampDate(timestamp).toISOString();
}

export function timeOrNull(timestamp: Timestamp | undefined): string | null {
  return timestamp ? timestampDate(timestamp).toISOString() : null;
}

function commonOf(node: Node) {
  return {
    id: node.id,
    name: node.name,
    path: node.path,
    state: node.recycled ? ('recycled' as const) : ('active' as const),
    version: Number(node.version),
    created_at: timeOf(node.createdAt),
    updated_at: timeOf(node.updatedAt),
    deleted_at: timeOrNull(node.deletedAt),
    purge_at: timeOrNull(node.purgeAt),
  };
}

function nameOf<T extends string>(names: Readonly<Record<number, T>>, value: number): T {
  const name = names[value];
  if (name === undefined) throw new Error(`a message has the unknown enum value ${value}`);
  return name;
}

/** The message of a call that must have answered a node. */
export function present<T>(value: T | undefined): T {
  if (value === undefined) throw new Error('a service answered without what was asked for');
  return value;
}
