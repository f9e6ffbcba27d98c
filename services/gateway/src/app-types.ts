import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import type { Downloader, Uploader } from '@stowage/common/bytes/operations';
import type { Client } from '@stowage/common/rpc/contract';
import type { ServiceName } from '@stowage/common/rpc/connections';
import type { Logger } from '@stowage/common/runtime/logger';
import type { BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import type { ReadBlobRequestSchema } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import type { TreeService } from '@stowage/proto/stowage/catalog/v1/tree';
import type { DocumentService } from '@stowage/proto/stowage/export/v1/document';
import type {
  ExportService,
  ImportPlanRequestSchema,
  ImportPlanResponseSchema,
  PlanRestoreRequestSchema,
  PlanRestoreResponseSchema,
  ReadExportRequestSchema,
  ValidateDocumentRequestSchema,
  ValidateDocumentResponseSchema,
} from '@stowage/proto/stowage/export/v1/export';
import type { JobService } from '@stowage/proto/stowage/placement/v1/job';
import type { PolicyService } from '@stowage/proto/stowage/placement/v1/policy';
import type { SystemService } from '@stowage/proto/stowage/system/v1/system';
import type {
  AppendUploadRequestSchema,
  AppendUploadResponseSchema,
  CreateUploadResponseSchema,
  CreateUploadWithBodyRequestSchema,
  UploadService,
} from '@stowage/proto/stowage/upload/v1/upload';
import type {
  FastifyBaseLogger,
  FastifyInstance,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault,
} from 'fastify';
import type { Kysely } from 'kysely';
import type { ImagePreviewer } from './content/preview-process.ts';
import type { GatewaySettings } from './settings.ts';
import type { Tables } from './tables.ts';

/** Fastify with request types inferred from the routes' schemas. */
export type App = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>;

/** What the routes are handed. */
export interface AppDependencies {
  settings: GatewaySettings;
  logger: Logger;
  db: Kysely<Tables>;
  /** For short reading. */
  reads: Kysely<Tables>;
  tree: Client<typeof TreeService>;
  content: Client<typeof ContentService>;
  uploads: Client<typeof UploadService>;
  backends: Client<typeof BackendService>;
  jobs: Client<typeof JobService>;
  policies: Client<typeof PolicyService>;
  exports: Client<typeof ExportService>;
  documents: Client<typeof DocumentService>;
  /** Each service behind the gateway, for the readiness of the whole. */
  systems: ReadonlyMap<ServiceName, Client<typeof SystemService>>;
  createUploadWithBody: Uploader<typeof CreateUploadWithBodyRequestSchema, typeof CreateUploadResponseSchema>;
  appendUpload: Uploader<typeof AppendUploadRequestSchema, typeof AppendUploadResponseSchema>;
  readBlob: Downloader<typeof ReadBlobRequestSchema>;
  readExport: Downloader<typeof ReadExportRequestSchema>;
  validateDocument: Uploader<typeof ValidateDocumentRequestSchema, typeof ValidateDocumentResponseSchema>;
  planRestore: Uploader<typeof PlanRestoreRequestSchema, typeof PlanRestoreResponseSchema>;
  importPlan: Uploader<typeof ImportPlanRequestSchema, typeof ImportPlanResponseSchema>;
  previewer: ImagePreviewer;
  /** Whether this process takes work; false while it starts or drains. */
  isReady(): boolean;
  isDraining(): boolean;
}
