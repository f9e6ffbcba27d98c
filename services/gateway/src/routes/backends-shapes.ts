import type { Backend as BackendMessage, DeleteBlocker } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Closed, Id, Nullable, Time } from '../http/schemas.ts';
import { timeOf, timeOrNull } from './nodes.ts';

const fields = {
  id: Id,
  name: Type.String(),
  type: Type.String({ enum: ['local_directory', 's3', 'webdav'] }),
  state: Type.String({ enum: ['enabled', 'disabled'] }),
  is_default: Type.Boolean({ description: 'Uploads land there where no backend of their policy can take them.' }),
  config: Type.Record(Type.String(), Type.Unknown(), { description: 'Public values only.' }),
  secret_fields: Type.Array(Type.String(), { description: 'Which credentials are set; their values never leave.' }),
  health: Type.Object({
    status: Type.String({ enum: ['unknown', 'healthy', 'unhealthy'] }),
    checked_at: Nullable(Time),
    latency_ms: Nullable(Type.Number()),
    detail: Nullable(Type.String({ description: 'The step of the last check that failed, and why; or a warning.' })),
  }),
  usage: Type.Object({ replicas: Type.Integer(), bytes: Type.Integer() }),
  version: Type.Integer(),
  created_at: Time,
  updated_at: Time,
};

export const Backend = Type.Object(fields, { title: 'Backend' });

const Blocker = Type.Union([
  Type.Object({ code: Type.Union([Type.Literal('not_disabled'), Type.Literal('default_backend')]) }),
  Type.Object({
    code: Type.Literal('has_replicas'),
    count: Type.Integer({ description: 'Replicas and unfinished uploads.' }),
    bytes: Type.Integer({ description: 'Of the replicas.' }),
  }),
  Type.Object({ code: Type.Literal('referenced_by_policy'), file_classes: Type.Array(Type.String()) }),
]);

export const BackendDetail = Type.Object(
  {
    ...fields,
    deletable: Type.Object(
      { ok: Type.Boolean(), blockers: Type.Array(Blocker) },
      { description: 'Whether it could be deleted now, and all that keeps it from that.' },
    ),
  },
  { title: 'BackendDetail' },
);

const text = (description: string, example?: string) => {
  return Type.Optional(Type.String({ description, ...(example === undefined ? {} : { examples: [example] }) }));
};
const secret = (description: string) => {
  return Type.Optional(
    Type.Union([Type.String({ maxLength: 4096 }), Type.Null()], {
      description: `${description} Kept where it is left out, null or empty.`,
    }),
  );
};

/** The keys of all types; which of them a type has, and their form, is for the service behind to say. */
export const Config = Closed({
  root_path: text('`local_directory`: an absolute path in an allowed folder. `webdav`: `/stowage` unless told.'),
  endpoint: Type.Optional(Nullable(Type.String({ description: '`s3`: null for AWS.' }))),
  region: text('`s3`', 'eu-central-1'),
  bucket: text('`s3`', 'team-files'),
  prefix: text('`s3`: what every key begins with.', 'stowage'),
  force_path_style: Type.Optional(Type.Boolean({ description: '`s3`: buckets are paths, not hosts.' })),
  access_key_id: secret('`s3`, sealed.'),
  secret_access_key: secret('`s3`, sealed.'),
  session_token: secret('`s3`, sealed.'),
  url: text('`webdav`', 'https://dav.example.com/remote.php/dav/files/ada'),
  username: text('`webdav`'),
  password: secret('`webdav`, sealed.'),
});

/** A backend as clients see it. */
export function toBackend(backend: BackendMessage): Static<typeof Backend> {
  const { health } = backend;
  return {
    id: backend.id,
    name: backend.name,
    type: backend.type,
    state: backend.enabled ? 'enabled' : 'disabled',
    is_default: backend.isDefault,
    config: backend.config ?? {},
    secret_fields: backend.secretFields,
    health: {
      status: health?.status ?? 'unknown',
      checked_at: timeOrNull(health?.checkedAt),
      latency_ms: health?.latencyMs ?? null,
      detail: health?.detail ?? null,
    },
    usage: { replicas: Number(backend.replicas), bytes: Number(backend.bytes) },
    version: Number(backend.version),
    created_at: timeOf(backend.createdAt),
    updated_at: timeOf(backend.updatedAt),
  };
}

/** What keeps a backend from being deleted, as clients see it. */
export function toDeletable(blockers: readonly DeleteBlocker[]): Static<typeof BackendDetail>['deletable'] {
  return { ok: blockers.length === 0, blockers: blockers.map(toBlocker) };
}

function toBlocker({ code, count, bytes, fileClasses }: DeleteBlocker): Static<typeof Blocker> {
  switch (code) {
    case 'not_disabled':
    case 'default_backend':
      return { code };
    case 'has_replicas':
      return { code, count: Number(count), bytes: Number(bytes) };
    case 'referenced_by_policy':
      return { code, file_classes: fileClasses };
    default:
      throw new Error(`backend-registry told of an unknown blocker: ${code}`);
  }
}
