import { UploadState } from '@stowage/proto/stowage/upload/v1/upload';
import type { Upload as UploadMessage } from '@stowage/proto/stowage/upload/v1/upload';
import { Type } from 'typebox';
import type { Static } from 'typebox';
import type { App, AppDependencies } from '../app-types.ts';
import { contextOf } from '../http/call-context.ts';
import { setEtag } from '../http/conditions.ts';
import { Closed, DirectoryId, FileClass, Id, Name, Nullable, Sha256, Time } from '../http/schemas.ts';
import { directoryIdOf, File, onConflictOf, present, timeOf, toFile } from './nodes.ts';

const tags = ['Uploads'];
const Params = Type.Object({ upload_id: Id });
const retryAfterSeconds = 2;

// Without a default, which would hide what was said at creation.
const OnConflict = Type.Union([Type.Literal('fail'), Type.Literal('rename')], {
  description:
    'When the name is taken: refuse, or take the next free `name (2).ext`. By default as was said at creation.',
});

const Finalizing = Type.Object({ state: Type.Literal('finalizing') }, { title: 'Finalizing' });

const Upload = Type.Object(
  {
    id: Id,
    state: Type.String({ enum: ['uploading', 'finalizing', 'finalized'] }),
    offset: Type.Integer({ description: 'In bytes; all before it is durable.' }),
    length: Nullable(Type.Integer()),
    filename: Nullable(Type.String()),
    directory_id: Nullable(Id),
    media_type: Nullable(Type.String()),
    file_class: Nullable(Type.String()),
    sha256: Nullable(Sha256),
    file_id: Nullable(Id),
    created_at: Time,
    expires_at: Time,
  },
  { title: 'Upload' },
);

/** Contract §5: what comes after the last byte. */
export function uploadRoutes(app: App, { uploads }: AppDependencies): void {
  app.route({
    method: 'GET',
    url: '/api/uploads/:upload_id',
    config: { access: 'editor', problems: ['not_found', 'gone'] },
    schema: { tags, summary: 'Read an upload', params: Params, response: { 200: Upload } },
    handler: async (request) =>
      toUpload(present((await uploads.getUpload({ id: request.params.upload_id }, contextOf(request))).upload)),
  });

  app.route({
    method: 'POST',
    url: '/api/uploads/:upload_id/finalize',
    config: {
      access: 'editor',
      idempotent: true,
      problems: [
        'not_found',
        'gone',
        'upload_incomplete',
        'name_conflict',
        'state_conflict',
        'checksum_mismatch',
        'insufficient_storage',
      ],
      unhurried: true,
    },
    schema: {
      tags,
      summary: 'Make a file of a complete upload',
      description:
        '201 once its content is durable and checked; again: 200 and the same file. 202 while a huge one is read back.',
      params: Params,
      body: Closed({
        filename: Type.Optional(Name),
        directory_id: Type.Optional(DirectoryId),
        file_class: Type.Optional(FileClass),
        sha256: Type.Optional(Sha256),
        on_conflict: Type.Optional(OnConflict),
      }),
      response: { 200: File, 201: File, 202: Finalizing },
    },
    handler: async (request, reply) => {
      const target = targetOf(request.body);
      const { file, created } = await uploads.finalizeUpload(
        { id: request.params.upload_id, target },
        contextOf(request),
        { timeoutMs: 40_000 },
      );
      if (!file)
        return reply
          .code(202)
          .header('retry-after', retryAfterSeconds)
          .send({ state: 'finalizing' as const });
      const shown = toFile(file);
      setEtag(reply, shown.version);
      void reply.header('location', `/api/files/${shown.id}`);
      return created ? reply.code(201).send(shown) : reply.code(200).send(shown);
    },
  });
}

interface FinalizeBody {
  filename?: string;
  directory_id?: string;
  file_class?: string;
  sha256?: string;
  on_conflict?: 'fail' | 'rename';
}

function targetOf(body: FinalizeBody) {
  return {
    filename: body.filename,
    directoryId: body.directory_id === undefined ? undefined : directoryIdOf(body.directory_id),
    fileClass: body.file_class,
    sha256: body.sha256 === undefined ? undefined : Buffer.from(body.sha256, 'hex'),
    ...(body.on_conflict === undefined ? {} : { onConflict: onConflictOf(body.on_conflict) }),
  };
}

const states = {
  [UploadState.OPEN]: 'uploading',
  [UploadState.FINALIZING]: 'finalizing',
  [UploadState.FINALIZED]: 'finalized',
} as const;

function toUpload(upload: UploadMessage): Static<typeof Upload> {
  const { target } = upload;
  const state = Object.entries(states).find(([value]) => Number(value) === upload.state)?.[1];
  return {
    id: upload.id,
    state: present(state),
    offset: Number(upload.offset),
    length: upload.length === undefined ? null : Number(upload.length),
    filename: target?.filename ?? null,
    directory_id: target?.directoryId ?? null,
    media_type: target?.mediaType ?? null,
    file_class: target?.fileClass ?? null,
    sha256: target?.sha256 ? Buffer.from(target.sha256).toString('hex') : null,
    file_id: upload.fileId ?? null,
    created_at: timeOf(upload.createdAt),
    expires_at: timeOf(upload.expiresAt),
  };
}
