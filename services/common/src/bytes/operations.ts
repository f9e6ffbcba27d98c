import { create } from '@bufbuild/protobuf';
import type { DescMessage, Message, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import type { Readable } from 'node:stream';
import {
  AppendStagedRequestSchema,
  AppendStagedResponseSchema,
  ReadBlobRequestSchema,
} from '@stowage/proto/stowage/backend_registry/v1/blob';
import {
  AppendUploadRequestSchema,
  AppendUploadResponseSchema,
  CreateUploadResponseSchema,
  CreateUploadWithBodyRequestSchema,
} from '@stowage/proto/stowage/upload/v1/upload';
import {
  ImportPlanRequestSchema,
  ImportPlanResponseSchema,
  PlanRestoreRequestSchema,
  PlanRestoreResponseSchema,
  ReadExportRequestSchema,
  ValidateDocumentRequestSchema,
  ValidateDocumentResponseSchema,
} from '@stowage/proto/stowage/export/v1/export';
import {
  ReadKeptRequestSchema,
  WriteKeptRequestSchema,
  WriteKeptResponseSchema,
} from '@stowage/proto/stowage/backend_registry/v1/kept';
import type { CallContext } from '../rpc/context.ts';

/** A call with a message and a stream of bytes in, and a message out. */
export interface UploadOperation<I extends DescMessage, O extends DescMessage> {
  service: ByteService;
  path: string;
  input: I;
  output: O;
  /** From the last byte of the body to the answer, in ms; where it is absent, what a store needs to make it durable. */
  answerMs?: number;
}

/** A call with a message in and a stream of bytes out. */
export interface DownloadOperation<I extends DescMessage> {
  service: ByteService;
  path: string;
  input: I;
  /** Until the first byte, in ms; where it is absent, as long as any short call. */
  answerMs?: number;
}

/** The services that have a byte port. */
export type ByteService = 'upload' | 'backend-registry' | 'export';

/** Appends a client's body to its upload. */
export const appendUpload = {
  service: 'upload',
  path: 'append-upload',
  input: AppendUploadRequestSchema,
  output: AppendUploadResponseSchema,
} as const satisfies UploadOperation<DescMessage, DescMessage>;

/** Makes an upload with its first bytes. */
export const createUploadWithBody = {
  service: 'upload',
  path: 'create-upload-with-body',
  input: CreateUploadWithBodyRequestSchema,
  output: CreateUploadResponseSchema,
} as const satisfies UploadOperation<DescMessage, DescMessage>;

/** Appends to staged content on a backend. */
export const appendStaged = {
  service: 'backend-registry',
  path: 'append-staged',
  input: AppendStagedRequestSchema,
  output: AppendStagedResponseSchema,
} as const satisfies UploadOperation<DescMessage, DescMessage>;

/** Reads a range of a blob; a shorter blob is `not_found`, one that ends early later breaks the stream. */
export const readBlob = {
  service: 'backend-registry',
  path: 'read-blob',
  input: ReadBlobRequestSchema,
} as const satisfies DownloadOperation<DescMessage>;

/** Writes a kept export to a backend, which may have to put together its parts. */
export const writeKept = {
  service: 'backend-registry',
  path: 'write-kept',
  input: WriteKeptRequestSchema,
  output: WriteKeptResponseSchema,
  answerMs: 300_000,
} as const satisfies UploadOperation<DescMessage, DescMessage>;

/** Reads a kept export from its backend; one that ends early breaks the stream. */
export const readKept = {
  service: 'backend-registry',
  path: 'read-kept',
  input: ReadKeptRequestSchema,
} as const satisfies DownloadOperation<DescMessage>;

/** Metadata of millions of files are read or written between the last byte and the answer. */
const metadataMs = 900_000;

/** Reads a metadata document: as the metadata are now, or one that was kept. */
export const readExport = {
  service: 'export',
  path: 'read-export',
  input: ReadExportRequestSchema,
  answerMs: 60_000,
} as const satisfies DownloadOperation<DescMessage>;

/** Tells what is wrong with a metadata document. */
export const validateDocument = {
  service: 'export',
  path: 'validate-document',
  input: ValidateDocumentRequestSchema,
  output: ValidateDocumentResponseSchema,
  answerMs: metadataMs,
} as const satisfies UploadOperation<DescMessage, DescMessage>;

/** Keeps a metadata document and tells what its import would do. */
export const planRestore = {
  service: 'export',
  path: 'plan-restore',
  input: PlanRestoreRequestSchema,
  output: PlanRestoreResponseSchema,
  answerMs: metadataMs,
} as const satisfies UploadOperation<DescMessage, DescMessage>;

/** Replaces the metadata by the document of a plan. */
export const importPlan = {
  service: 'export',
  path: 'import-plan',
  input: ImportPlanRequestSchema,
  output: ImportPlanResponseSchema,
  answerMs: metadataMs,
} as const satisfies UploadOperation<DescMessage, DescMessage>;

/** How a caller sends bytes. Errors as the operation's message says; `unavailable` where nothing answers. */
export type Uploader<I extends DescMessage, O extends DescMessage> = (
  request: MessageInitShape<I>,
  body: Readable,
  context: CallContext,
) => Promise<MessageShape<O>>;

/** How a caller receives bytes: the promise settles before the first byte, later failures break the stream. */
export type Downloader<I extends DescMessage> = (
  request: MessageInitShape<I>,
  context: CallContext,
) => Promise<Readable>;

/** A byte operation with its types erased, for one list of all that a process serves. */
export type ByteEndpoint =
  | {
      kind: 'upload';
      operation: UploadOperation<DescMessage, DescMessage>;
      run(request: Message, body: Readable, context: CallContext): Promise<Message>;
    }
  | {
      kind: 'download';
      operation: DownloadOperation<DescMessage>;
      run(request: Message, context: CallContext): Promise<Readable>;
    };

/** Binds what a service does to an upload operation. The body is read without being destroyed on a refusal. */
export function uploadEndpoint<I extends DescMessage, O extends DescMessage>(
  operation: UploadOperation<I, O>,
  run: (request: MessageShape<I>, body: Readable, context: CallContext) => Promise<MessageInitShape<O>>,
): ByteEndpoint {
  return {
    kind: 'upload',
    operation,
    // `create` gives exactly the message that the operation's input describes.
    run: async (request, body, context) =>
      create(operation.output, await run(create(operation.input, request as MessageInitShape<I>), body, context)),
  };
}

/** Binds what a service does to a download operation. */
export function downloadEndpoint<I extends DescMessage>(
  operation: DownloadOperation<I>,
  run: (request: MessageShape<I>, context: CallContext) => Promise<Readable>,
): ByteEndpoint {
  return {
    kind: 'download',
    operation,
    run: (request, context) => run(create(operation.input, request as MessageInitShape<I>), context),
  };
}
