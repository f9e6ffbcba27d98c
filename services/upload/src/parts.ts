import type {
  AppendStagedRequestSchema,
  AppendStagedResponseSchema,
} from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import type { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import type { TreeService } from '@stowage/proto/stowage/catalog/v1/tree';
import type { PolicyService } from '@stowage/proto/stowage/placement/v1/policy';
import type { Uploader } from '@stowage/common/bytes/operations';
import type { Client } from '@stowage/common/rpc/contract';
import type { Logger } from '@stowage/common/runtime/logger';
import type { Kysely } from 'kysely';
import type { LRUCache } from 'lru-cache';
import type { AppendCounter } from './append-counter.ts';
import type { UploadLeases } from './leases.ts';
import type { UploadSettings } from './settings.ts';
import type { SyncCopies } from './sync-copies.ts';

export type Db = Kysely<unknown>;

/** What the service is made of: its database, and the services that it asks. */
export interface UploadParts {
  db: Db;
  /** For short reading. */
  reads: Db;
  settings: UploadSettings;
  logger: Logger;
  leases: UploadLeases;
  appends: AppendCounter;
  /** Uploads that this process saw get their last byte. */
  complete: LRUCache<string, true>;
  tree: Client<typeof TreeService>;
  content: Client<typeof ContentService>;
  blobs: Client<typeof BlobService>;
  policies: Client<typeof PolicyService>;
  copies: SyncCopies;
  appendStaged: Uploader<typeof AppendStagedRequestSchema, typeof AppendStagedResponseSchema>;
}
