import { timestampDate } from '@bufbuild/protobuf/wkt';
import type { Upload } from '@stowage/proto/stowage/upload/v1/upload';
import { AppError } from '@stowage/common/errors';
import { Type } from 'typebox';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { App, AppDependencies } from '../app-types.ts';
import { contextOf } from '../http/call-context.ts';
import { sendError } from '../http/error-handler.ts';
import { sendNothing } from '../http/no-content.ts';
import { recordReceived } from '../http/request-metrics.ts';
import { Id, NoContent } from '../http/schemas.ts';
import { holdsBodyBack, wantBody } from '../http/server-guards.ts';
import { drain } from '../tus/drain.ts';
import {
  bodyLength,
  checkBodyType,
  checksumAlgorithms,
  checkVersion,
  declaredLength,
  tusExtensions,
  tusVersion,
  uploadChecksum,
  uploadLength,
  uploadOffset,
} from '../tus/headers.ts';
import { parseMetadata } from '../tus/metadata.ts';
import { present } from './nodes.ts';

const tags = ['Resumable uploads (tus 1.0.0)'];
const Params = Type.Object({ upload_id: Id });
type UploadRequest = FastifyRequest<{ Params: { upload_id: string } }>;
/** Up to this length a body goes with the creation, without a lease: it is there or gone in no time. */
const shortBodyBytes = 1024 * 1024;

type Handler = (request: UploadRequest, reply: FastifyReply) => Promise<void>;

const creationProblems = [
  'not_found',
  'tus_version_unsupported',
  'payload_too_large',
  'unsupported_media_type',
  'rate_limited',
  'insufficient_storage',
  'chunk_checksum_mismatch',
] as const;
const appendProblems = [...creationProblems, 'offset_conflict', 'gone', 'locked'] as const;

const version = { 'Tus-Resumable': { description: 'Always `1.0.0`.', pattern: '^1\\.0\\.0$', required: true } };
const number = '^(0|[1-9][0-9]{0,15})$';
const checksumHeader = {
  'Upload-Checksum': {
    description: '`sha1` or `sha256`, a space, and the digest of this body in base64.',
    pattern: '^(sha1 [A-Za-z0-9+/]{27}=|sha256 [A-Za-z0-9+/]{43}=)$',
  },
};
const creationHeaders = {
  ...version,
  'Upload-Length': {
    description: 'The length of the whole in bytes; or `Upload-Defer-Length: 1`.',
    pattern: number,
  },
  'Upload-Defer-Length': { description: '`1`: a later PATCH tells the length.', pattern: '^1$' },
  'Upload-Metadata':
    'Pairs of a key and a base64 value, separated by commas: filename, directory_id, filetype, file_class, sha256, on_conflict.',
  ...checksumHeader,
};
const appendHeaders = {
  ...version,
  'Upload-Offset': {
    description: 'Where the bytes belong: the offset of the last answer or of HEAD.',
    pattern: number,
    required: true,
  },
  'Upload-Length': { description: 'The length of an upload that deferred it, once.', pattern: number },
  ...checksumHeader,
};
const overrideHeaders = {
  ...version,
  'X-HTTP-Method-Override': {
    description: 'The method that is meant; its other headers go with it.',
    pattern: '^(HEAD|PATCH|DELETE)$',
    required: true,
  },
};

/** Contract §5: tus 1.0.0. The body of a request is never parsed here: it flows on to the upload service. */
export function tusRoutes(app: App, dependencies: AppDependencies): void {
  void app.register(async (files: App) => {
    files.removeAllContentTypeParsers();
    files.addContentTypeParser('*', (_request, _payload, done) => done(null));
    files.setErrorHandler(async (error, request, reply) => {
      if (!(await drain(request.raw))) void reply.header('connection', 'close');
      if (error instanceof AppError && error.code === 'tus_version_unsupported')
        void reply.header('tus-version', tusVersion);
      sendError(error, request, reply);
      return reply;
    });
    optionsRoutes(files, dependencies);
    creationRoute(files, dependencies);
    uploadRoutes(files, dependencies);
  });
}

function optionsRoutes(app: App, { settings }: AppDependencies): void {
  for (const url of ['/files', '/files/:upload_id']) {
    app.route({
      method: 'OPTIONS',
      url,
      config: { access: 'public' },
      schema: { tags, summary: 'What this server speaks', security: [], response: { 204: NoContent } },
      handler: async (_request, reply) =>
        sendNothing(
          reply.headers({
            'tus-version': tusVersion,
            'tus-extension': tusExtensions,
            'tus-max-size': settings.maxUploadBytes,
            'tus-checksum-algorithm': checksumAlgorithms,
          }),
        ),
    });
  }
}

function creationRoute(app: App, dependencies: AppDependencies): void {
  app.route({
    method: 'POST',
    url: '/files',
    config: {
      access: 'editor',
      problems: creationProblems,
      requestHeaders: creationHeaders,
      takesBytes: true,
      unhurried: true,
    },
    schema: {
      tags,
      summary: 'Make an upload, with its first bytes where there is a body',
      description: 'Upload-Metadata: filename, directory_id, filetype, file_class, sha256, on_conflict.',
      response: { 201: Type.Null({ description: 'Made; see Location, Upload-Offset and Upload-Expires.' }) },
    },
    handler: async (request, reply) => {
      const { headers } = request;
      checkVersion(headers);
      const length = uploadLength(headers);
      const target = parseMetadata(headers);
      const first = bodyLength(headers);
      if (first !== 0) checkBodyType(headers);
      const checksum = uploadChecksum(headers);
      const metadata = headers['upload-metadata']?.toString();
      const context = contextOf(request);
      const wanted = { length: length === null ? undefined : BigInt(length), metadata, target };
      // A client that waits for "100 Continue" is told of a refusal before it sends.
      const ready = first !== null && first > 0 && checksum === null && !holdsBodyBack(request.raw);
      const short = ready && first <= shortBodyBytes;
      const { upload } = short
        ? await dependencies.createUploadWithBody({ upload: wanted, bodyLength: BigInt(first) }, request.raw, context)
        : await dependencies.uploads.createUpload(wanted, context);
      const { id } = present(upload);
      void reply.header('location', `${dependencies.settings.publicUrl ?? ''}/files/${id}`);
      let { offset, expiresAt } = present(upload);
      if (first !== 0 && !short) {
        wantBody(request, reply);
        const bodyLength = first === null ? undefined : BigInt(first);
        const append = { id, offset: 0n, checksum: checksum ?? undefined, bodyLength };
        ({ offset, expiresAt } = await dependencies.appendUpload(append, request.raw, context));
      }
      recordReceived(offset);
      void reply.headers({ 'upload-offset': String(offset), 'upload-expires': httpDate(expiresAt) });
      return sendNothing(reply, 201);
    },
  });
}

function uploadRoutes(app: App, dependencies: AppDependencies): void {
  const head = headHandler(dependencies);
  const patch = patchHandler(dependencies);
  const terminate = terminateHandler(dependencies);
  const overridable = new Map<string, Handler>([
    ['HEAD', head],
    ['PATCH', patch],
    ['DELETE', terminate],
  ]);
  const config = { access: 'editor' as const, problems: appendProblems, takesBytes: true, unhurried: true };
  const response = { 204: NoContent };
  const url = '/files/:upload_id';
  app.route({
    method: 'HEAD',
    url,
    config: {
      access: 'editor',
      problems: ['not_found', 'gone', 'tus_version_unsupported'],
      requestHeaders: version,
      swagger: { exposeHeadRoute: true },
    },
    schema: {
      tags,
      summary: 'How far an upload is',
      params: Params,
      response: { 200: Type.Null({ description: 'See Upload-Offset.' }) },
    },
    handler: head,
  });
  app.route({
    method: 'PATCH',
    url,
    config: { ...config, requestHeaders: appendHeaders },
    schema: { tags, summary: 'Append bytes at the offset', params: Params, response },
    handler: patch,
  });
  app.route({
    method: 'DELETE',
    url,
    config: {
      access: 'editor',
      problems: ['not_found', 'gone', 'state_conflict', 'tus_version_unsupported'],
      requestHeaders: version,
    },
    schema: { tags, summary: 'Give an unfinished upload up', params: Params, response },
    handler: terminate,
  });
  app.route({
    method: 'POST',
    url,
    config: { ...config, problems: [...appendProblems, 'method_not_allowed'], requestHeaders: overrideHeaders },
    schema: {
      tags,
      summary: 'X-HTTP-Method-Override for proxies that refuse PATCH',
      params: Params,
      response: { ...response, 200: Type.Null() },
    },
    handler: async (request, reply) => {
      const handler = overridable.get(String(request.headers['x-http-method-override'] ?? ''));
      const allow = [...overridable.keys()];
      if (!handler) throw new AppError('method_not_allowed', `Use ${allow.join(', ')} here.`, { members: { allow } });
      await handler(request, reply);
    },
  });
}

function headHandler({ uploads }: AppDependencies): Handler {
  return async (request, reply) => {
    checkVersion(request.headers);
    const { upload } = await uploads.getUpload({ id: request.params.upload_id }, contextOf(request));
    void reply.headers(stateHeaders(present(upload)));
    await reply.code(200).header('cache-control', 'no-store').send();
  };
}

function stateHeaders(upload: Upload): Record<string, string> {
  const headers: Record<string, string> = {
    'upload-offset': String(upload.offset),
    'upload-expires': httpDate(upload.expiresAt),
  };
  if (upload.length === undefined) headers['upload-defer-length'] = '1';
  else headers['upload-length'] = String(upload.length);
  if (upload.metadata !== undefined) headers['upload-metadata'] = upload.metadata;
  return headers;
}

function patchHandler({ appendUpload }: AppDependencies): Handler {
  return async (request, reply) => {
    const { headers } = request;
    checkVersion(headers);
    checkBodyType(headers);
    const length = declaredLength(headers);
    const body = bodyLength(headers);
    const offset = uploadOffset(headers);
    const checksum = uploadChecksum(headers);
    wantBody(request, reply);
    const appended = await appendUpload(
      {
        id: request.params.upload_id,
        offset: BigInt(offset),
        length: length === null ? undefined : BigInt(length),
        checksum: checksum ?? undefined,
        bodyLength: body === null ? undefined : BigInt(body),
      },
      request.raw,
      contextOf(request),
    );
    recordReceived(appended.offset - BigInt(offset));
    void reply.headers({ 'upload-offset': String(appended.offset), 'upload-expires': httpDate(appended.expiresAt) });
    await sendNothing(reply);
  };
}

function terminateHandler({ uploads }: AppDependencies): Handler {
  return async (request, reply) => {
    checkVersion(request.headers);
    await uploads.terminateUpload({ id: request.params.upload_id }, contextOf(request));
    await sendNothing(reply);
  };
}

/** RFC 9110 §5.6.7. */
function httpDate(timestamp: Upload['expiresAt']): string {
  return timestampDate(present(timestamp)).toUTCString();
}
