import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { appendStaged, readBlob } from '@stowage/common/bytes/operations';
import type { ByteEndpoint, Downloader, Uploader } from '@stowage/common/bytes/operations';
import { openDatabase, queryBuilder, readBuilder } from '@stowage/common/database/database';
import { LocalConnections } from '@stowage/common/rpc/connections';
import { backgroundContext } from '@stowage/common/rpc/context';
import type { CallContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import { createLogger } from '@stowage/common/runtime/logger';
import { BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { BlobService } from '@stowage/proto/stowage/backend_registry/v1/blob';
import { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import { Bandwidth } from './bandwidth.ts';
import { LocalRoots } from './config/local-roots.ts';
import { setUpDefaultBackend } from './default-backend.ts';
import { DigestCache } from './digest-cache.ts';
import { EndpointGuard } from './network/endpoint-guard.ts';
import { OpenBackends } from './open-backend.ts';
import { registryByteEndpoints, registryEndpoints } from './rpc.ts';
import type { RegistryParts } from './rpc.ts';
import { Seals } from './seal-blob.ts';
import { KeyRing, keyBytes } from './secrets/key-ring.ts';
import type { BackendRow, Tables } from './tables.ts';

/** What is to be staged. */
interface StageRequest {
  stagedId: string;
  backendIds?: string[];
  size?: bigint;
}

/** One replica of the service, called as other services call it. */
export interface TestReplica {
  backends: Client<typeof BackendService>;
  blobs: Client<typeof BlobService>;
  /** Chooses a backend and makes staged content there. */
  stage(wanted: StageRequest): Promise<{ backendId: string }>;
  append: Uploader<typeof appendStaged.input, typeof appendStaged.output>;
  read: Downloader<typeof readBlob.input>;
  byteEndpoints: ByteEndpoint[];
  stores: OpenBackends;
  setUp(): Promise<void>;
}

/** A database and a data folder, and the replicas of the service that share them. */
export interface TestRegistry {
  dataDir: string;
  /** Where the default backend lies. */
  root: string;
  /** The superuser. */
  admin: pg.Pool;
  /** As the service has it. */
  db: RegistryParts['db'];
  replica(options?: { reserveBytes?: number; ring?: KeyRing }): TestReplica;
  rows(): Promise<BackendRow[]>;
  /** Forgets all backends and empties the folder. */
  reset(): Promise<void>;
  close(): Promise<void>;
}

export async function startTestRegistry(): Promise<TestRegistry> {
  const database = await startTestDatabase();
  const logger = createLogger('test', 'silent');
  const own = openDatabase({ url: database.url, service: 'backend-registry', connections: 8, logger });
  const admin = new pg.Pool({ connectionString: database.url, max: 2 });
  admin.on('error', () => undefined);
  const db = queryBuilder<Tables>(own);
  const reads = readBuilder<Tables>(own);
  const dataDir = await mkdtemp(path.join(tmpdir(), 'stowage-registry-'));
  return {
    dataDir,
    root: path.join(dataDir, 'backends', 'local'),
    admin,
    db,
    replica: ({ reserveBytes = 0, ring = new KeyRing([{ id: 'test', key: randomBytes(keyBytes) }]) } = {}) =>
      replicaOver({ db, reads }, dataDir, { reserveBytes, ring }),
    rows: () => db.selectFrom('registry.backends').selectAll().orderBy('name').execute(),
    reset: async () => {
      await admin.query('delete from registry.backends');
      await admin.query('delete from registry.secret_keys');
      await rm(path.join(dataDir, 'backends'), { recursive: true, force: true });
    },
    close: async () => {
      await own.close();
      await admin.end();
      await database.close();
      await rm(dataDir, { recursive: true });
    },
  };
}

export function context(): CallContext {
  return backgroundContext(new AbortController().signal);
}

function replicaOver(
  { db, reads }: Pick<RegistryParts, 'db' | 'reads'>,
  dataDir: string,
  { reserveBytes, ring }: { reserveBytes: number; ring: KeyRing },
): TestReplica {
  const logger = createLogger('test', 'silent');
  const connections = new LocalConnections(logger);
  const keys = (): KeyRing => ring;
  const roots = new LocalRoots([path.join(dataDir, 'backends')]);
  const guard = new EndpointGuard([]);
  const backends = new OpenBackends({
    db,
    keys,
    stores: { roots, agents: guard.agents(), record: () => undefined },
    logger,
  });
  const digests = new DigestCache();
  const seals = new Seals({ backends, digests, logger });
  const parts = {
    db,
    reads,
    content: connections.client(ContentService),
    backends,
    roots,
    guard,
    keys,
    digests,
    seals,
    reserveBytes,
    bandwidth: new Bandwidth(null),
    logger,
  };
  const byteEndpoints = registryByteEndpoints(parts);
  connections.add('backend-registry', registryEndpoints(parts), byteEndpoints);
  const blobs = connections.client(BlobService);
  return {
    backends: connections.client(BackendService),
    blobs,
    stage: async ({ stagedId, ...wish }) => {
      const { backendId } = await blobs.chooseBackend(wish, context());
      await blobs.createStaged({ backendId, stagedId }, context());
      return { backendId };
    },
    append: connections.uploader(appendStaged),
    read: connections.downloader(readBlob),
    byteEndpoints,
    stores: backends,
    setUp: () => setUpDefaultBackend({ db, dataDir, backends, kind: 'local', logger }),
  };
}
