import { createHash } from 'node:crypto';
import { catalogEndpoints } from '@stowage/catalog/rpc';
import { blobKey } from '@stowage/common/blob-key';
import { openDatabase, queryBuilder, readBuilder } from '@stowage/common/database/database';
import type { Database } from '@stowage/common/database/database';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import { enqueueJob } from '@stowage/common/jobs/enqueue';
import { claimJobs, settleJob } from '@stowage/common/jobs/queue';
import type { JobHandler, JsonObject } from '@stowage/common/jobs/job';
import { LocalConnections } from '@stowage/common/rpc/connections';
import { backgroundContext } from '@stowage/common/rpc/context';
import { endpoint } from '@stowage/common/rpc/contract';
import type { Endpoint } from '@stowage/common/rpc/contract';
import { createLogger } from '@stowage/common/runtime/logger';
import { BackendSlots } from '@stowage/placement/backend-slots';
import { removeBlob } from '@stowage/placement/blob-jobs';
import { fullReconcile } from '@stowage/placement/full-reconcile';
import { BlobService, CopyResult, VerifyResult } from '@stowage/proto/stowage/backend_registry/v1/blob';
import { StoredService } from '@stowage/proto/stowage/backend_registry/v1/stored';
import { ComparisonService } from '@stowage/proto/stowage/catalog/v1/comparison';
import { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { NodeKind, OnConflict } from '@stowage/proto/stowage/catalog/v1/node';
import { ReplicaService } from '@stowage/proto/stowage/catalog/v1/replica';
import { TreeService } from '@stowage/proto/stowage/catalog/v1/tree';
import pg from 'pg';
import { startTestDatabase } from './test-database.ts';

/** A file, or what is to become one. */
export interface Candidate {
  fileId: string;
  blobId: string;
}

const lease = { holder: newId(), leaseMs: 60_000 };
const signal = new AbortController().signal;
const at = () => backgroundContext(signal);
const pageSize = 4;

async function unused(): Promise<never> {
  throw new Error('nobody is expected to call this');
}

/**
 * The real catalog and the real jobs of placement on a real database, over two stores in memory, with every grace time at
 * zero. `turn` is waited for before each call that touches a store or catalog, so that a scheduler may order them at will.
 */
export class CollectionWorld {
  turn: () => Promise<unknown> = async () => undefined;
  readonly near = newId();
  readonly far = newId();
  /** Removals of the last bytes of something that was live: there must be none. */
  readonly violations: string[] = [];
  readonly admin: pg.Pool;
  readonly #stores = new Map<string, Set<string>>();
  readonly #connections = new LocalConnections(createLogger('test', 'silent'));
  readonly #placement: Database;
  readonly #close: () => Promise<void>;

  private constructor(url: string, close: () => Promise<void>) {
    const logger = createLogger('test', 'silent');
    const catalog = openDatabase({ url, service: 'catalog', connections: 8, logger });
    this.#placement = openDatabase({ url, service: 'placement', connections: 4, logger });
    this.admin = new pg.Pool({ connectionString: url, max: 4 });
    this.admin.on('error', () => undefined);
    const keeping = { retentionMs: 86_400_000, graceMs: 0 };
    const endpoints = catalogEndpoints(queryBuilder(catalog), readBuilder(catalog), keeping);
    this.#connections.add(
      'catalog',
      endpoints.map((one) => this.#inTurn(one)),
      [],
    );
    this.#connections.add('backend-registry', [this.#blobs(), this.#stored()], []);
    this.#close = async () => {
      await Promise.all([catalog.close(), this.#placement.close(), this.admin.end()]);
      await close();
    };
  }

  static async start(): Promise<CollectionWorld> {
    const database = await startTestDatabase();
    const world = new CollectionWorld(database.url, () => database.close());
    await world.admin.query(
      `insert into registry.backends (id, name, type, config, health_status)
       values ($1, 'near', 'local_directory', '{}', 'healthy'), ($2, 'far', 's3', '{}', 'healthy')`,
      [world.near, world.far],
    );
    await world.admin.query("insert into placement.policies (file_class, replicas) values ('default', 1)");
    await world.admin.query(`insert into placement.policy_backends values ('default', 0, $1)`, [world.near]);
    return world;
  }

  close(): Promise<void> {
    return this.#close();
  }

  /** A file that is there before and after, so that the metadata is never empty, and orphans on both backends. */
  async reset(orphans: number): Promise<void> {
    this.turn = async () => undefined;
    this.violations.length = 0;
    this.#stores.clear();
    await this.admin.query(
      `truncate catalog.nodes, catalog.replicas, catalog.blobs, jobs.jobs, jobs.outbox, upload.uploads,
         placement.reconcile_run, placement.unknown_objects, placement.compared_backends`,
    );
    await this.admin.query("insert into catalog.nodes (id, kind, name) values ($1, 'directory', '')", [
      rootDirectoryId,
    ]);
    const first = this.candidate();
    this.seal(first, this.near);
    await this.commit(first, [this.near]);
    for (let n = 0; n < orphans; n += 1) this.seal(this.candidate(), n % 2 === 0 ? this.near : this.far);
  }

  candidate(): Candidate {
    return { fileId: newId(), blobId: newId() };
  }

  /** As the upload service has it. */
  async setUpload({ fileId, blobId }: Candidate, state: 'open' | 'finalizing' | 'abandoned' | null): Promise<void> {
    await this.turn();
    await this.admin.query('delete from upload.uploads where file_id = $1', [fileId]);
    if (state === null) return;
    await this.admin.query(
      `insert into upload.uploads (id, user_id, state, length, file_id, blob_id, backend_id, expires_at)
       values ($1, $1, $2, 3, $1, $3, $4, now())`,
      [fileId, state, blobId, this.near],
    );
  }

  seal({ blobId }: Candidate, backendId: string): void {
    this.#storeOf(backendId).add(blobId);
  }

  async commit({ fileId, blobId }: Candidate, backends: string[]): Promise<void> {
    const blob = { id: blobId, size: 3n, sha256: sha256Of(blobId), chunkCrc32c: Buffer.alloc(4) };
    const replicas = backends.map((backendId) => ({ backendId, key: blobKey(blobId) }));
    const place = { directoryId: rootDirectoryId, name: fileId, onConflict: OnConflict.FAIL };
    const kind = { mediaType: 'text/plain', fileClass: 'document' };
    await this.#connections.client(ContentService).commitFile({ fileId, ...place, ...kind, blob, replicas }, at());
  }

  async abandon({ fileId, blobId }: Candidate): Promise<void> {
    const replica = { backendId: this.near, key: blobKey(blobId) };
    await this.#connections.client(ContentService).abandonBlob({ fileId, blobId, replica }, at());
  }

  async recycle({ fileId: id }: Candidate): Promise<void> {
    await this.#connections.client(TreeService).recycleNode({ id, kind: NodeKind.FILE }, at());
  }

  async restore({ fileId: id }: Candidate): Promise<void> {
    const node = { id, kind: NodeKind.FILE, onConflict: OnConflict.FAIL };
    await this.#connections.client(TreeService).restoreNode(node, at());
  }

  async purge({ fileId: id }: Candidate): Promise<void> {
    await this.#connections.client(TreeService).purgeNode({ id, kind: NodeKind.FILE }, at());
  }

  /** One full reconcile, with an admin's word: the share of what goes is no shield here. */
  async reconcile(): Promise<JsonObject> {
    const db = this.#db();
    await enqueueJob(db, { kind: 'full_reconcile', params: { remove_unknown: true } });
    const client = this.#connections;
    const services = {
      content: client.client(ContentService),
      blobs: client.client(BlobService),
      replicas: client.client(ReplicaService),
      readTimeoutMs: () => 60_000,
    };
    const sides = { stored: client.client(StoredService), comparison: client.client(ComparisonService) };
    const limits = { outageGraceMs: 3_600_000, freshMs: 3_600_000 };
    const handler = fullReconcile({ db, services, limits, atOnce: 4, compare: { sides, graceMs: 0 } });
    const [result = {}] = await this.#work('full_reconcile', handler);
    return result;
  }

  /** Does the removals that are due. */
  async removeDue(): Promise<void> {
    const content = this.#connections.client(ContentService);
    const slots = new BackendSlots({ most: 4, waitMs: 1_000, slowMs: 60_000, slowMost: 1, restMs: 0 });
    const services = { content, blobs: this.#connections.client(BlobService) };
    await this.#work('remove_blob', removeBlob(this.#db(), services, slots));
  }

  holds(backendId: string, { blobId }: Candidate): boolean {
    return this.#storeOf(backendId).has(blobId);
  }

  /** Blobs on a backend. */
  stored(backendId: string): string[] {
    return [...this.#storeOf(backendId)].sort();
  }

  /** Blobs of files, recycled ones too. */
  async live(): Promise<string[]> {
    const { rows } = await this.admin.query<{ blob_id: string }>(
      'select blob_id from catalog.nodes where blob_id is not null order by blob_id',
    );
    return rows.map((row) => row.blob_id);
  }

  #db(): Parameters<typeof fullReconcile>[0]['db'] {
    return queryBuilder(this.#placement);
  }

  async #work(kind: string, handler: JobHandler): Promise<JsonObject[]> {
    const results: JsonObject[] = [];
    const db = this.#db();
    for (const job of await claimJobs(db, [kind], 50, lease)) {
      const result = await handler(job, { signal, progress: () => undefined });
      const progress = { done: 0, total: null, bytes: 0 };
      await settleJob(db, job, { state: 'succeeded', result, progress });
      results.push(result);
    }
    return results;
  }

  #storeOf(backendId: string): Set<string> {
    const store = this.#stores.get(backendId) ?? new Set<string>();
    this.#stores.set(backendId, store);
    return store;
  }

  async #delete(backendId: string, blobId: string): Promise<void> {
    await this.turn();
    if (!this.#storeOf(backendId).delete(blobId)) return;
    if ([this.near, this.far].some((id) => this.#storeOf(id).has(blobId))) return;
    const { rows } = await this.admin.query(
      `select from catalog.nodes where blob_id = $1
       union all select from upload.uploads where blob_id = $1 and state in ('open', 'finalizing')`,
      [blobId],
    );
    if (rows.length > 0) this.violations.push(blobId);
  }

  #inTurn({ descriptor, call }: Endpoint): Endpoint {
    return {
      descriptor,
      call: async (...given) => {
        await this.turn();
        return call(...given);
      },
    };
  }

  #blobs() {
    return endpoint(BlobService, {
      chooseBackend: unused,
      createStaged: unused,
      statStaged: unused,
      discardStaged: unused,
      sealBlob: unused,
      deleteBlob: async ({ backendId, key }) => {
        await this.#delete(backendId, idIn(key));
        return {};
      },
      verifyBlob: async ({ backendId, key }) => {
        await this.turn();
        const there = this.#storeOf(backendId).has(idIn(key));
        return { result: there ? VerifyResult.GOOD : VerifyResult.MISSING };
      },
      copyBlob: async ({ fromBackendId, toBackendId, key }) => {
        await this.turn();
        if (!this.#storeOf(fromBackendId).has(idIn(key))) return { result: CopyResult.SOURCE_MISSING };
        this.#storeOf(toBackendId).add(idIn(key));
        return { result: CopyResult.COPIED };
      },
    });
  }

  #stored() {
    return endpoint(StoredService, {
      listStoredBlobs: async ({ backendId, cursor }) => {
        await this.turn();
        const rest = this.stored(backendId)
          .map((blobId) => ({ blobId, key: blobKey(blobId) }))
          .filter(({ key }) => key > cursor)
          .sort((one, other) => (one.key < other.key ? -1 : 1));
        const items = rest.slice(0, pageSize);
        const last = items.at(-1);
        return {
          items: items.map(({ blobId }) => ({ blobId, size: 3n, modifiedAtMs: 0n })),
          ...(last && rest.length > items.length ? { nextCursor: last.key } : {}),
        };
      },
    });
  }
}

function idIn(key: string): string {
  return key.slice(key.lastIndexOf('/') + 1);
}

function sha256Of(blobId: string): Buffer {
  return createHash('sha256').update(blobId).digest();
}
