import { randomBytes } from 'node:crypto';
import { pino } from 'pino';
import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import pg from 'pg';
import { openDatabase, queryBuilder, readBuilder } from '@stowage/common/database/database';
import { newId, rootDirectoryId } from '@stowage/common/ids';
import type { JsonObject } from '@stowage/common/jobs/job';
import { LocalConnections } from '@stowage/common/rpc/connections';
import type { CallContext, IdempotencyKey } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import { ComparisonService } from '@stowage/proto/stowage/catalog/v1/comparison';
import { ContentService } from '@stowage/proto/stowage/catalog/v1/content';
import { ReplicaService } from '@stowage/proto/stowage/catalog/v1/replica';
import { OnConflict } from '@stowage/proto/stowage/catalog/v1/node';
import type { Node, NodeKind } from '@stowage/proto/stowage/catalog/v1/node';
import { TreeService } from '@stowage/proto/stowage/catalog/v1/tree';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import { purgeRecycleBin } from './purge-job.ts';
import { catalogEndpoints } from './rpc.ts';

/** The one backend that the tests' replicas lie on. */
export const backendId = '01900000-0000-7000-8000-00000000000b';
export const userId = '01900000-0000-7000-8000-0000000000aa';
export const keeping = { retentionMs: 30 * 86_400_000, graceMs: 7 * 86_400_000 };

/** A catalog on a database of its own, called as other services call it. */
export interface TestCatalog {
  tree: Client<typeof TreeService>;
  content: Client<typeof ContentService>;
  replicas: Client<typeof ReplicaService>;
  comparison: Client<typeof ComparisonService>;
  /** With the role of the catalog. */
  db: Kysely<unknown>;
  /** What `db` works with. */
  pool: pg.Pool;
  /** The superuser: sees and changes everything. */
  admin: pg.Pool;
  context(idempotency?: IdempotencyKey): CallContext;
  directory(name: string, parentId?: string): Promise<Node>;
  file(name: string, directoryId?: string, more?: Partial<CommitRequest>): Promise<Node>;
  purge(params?: JsonObject, signal?: AbortSignal): Promise<JsonObject>;
  /** Empties all tables but the root and the backend. */
  reset(): Promise<void>;
  close(): Promise<void>;
}

export async function startTestCatalog(): Promise<TestCatalog> {
  const database = await startTestDatabase();
  const logger = pino({ level: 'silent' });
  const own = openDatabase({ url: database.url, service: 'catalog', connections: 24, logger });
  const admin = new pg.Pool({ connectionString: database.url, max: 4 });
  admin.on('error', () => undefined);
  const db = queryBuilder<unknown>(own);
  const connections = new LocalConnections(logger);
  connections.add('catalog', catalogEndpoints(db, readBuilder(own), keeping), []);
  const tree = connections.client(TreeService);
  const content = connections.client(ContentService);
  const replicas = connections.client(ReplicaService);
  await admin.query(
    "insert into registry.backends (id, name, type, config) values ($1, 'disk', 'local_directory', '{}')",
    [backendId],
  );
  return {
    tree,
    content,
    replicas,
    comparison: connections.client(ComparisonService),
    db,
    pool: own.pool,
    admin,
    context: contextOf,
    directory: async (name, parentId = rootDirectoryId) =>
      nodeOf(await tree.createDirectory({ parentId, name, onConflict: OnConflict.FAIL }, contextOf())),
    file: async (name, directoryId = rootDirectoryId, more = {}) => {
      const { file } = await content.commitFile({ ...commitRequest(name, directoryId), ...more }, contextOf());
      return nodeOf({ node: file });
    },
    purge: (params = {}, signal = new AbortController().signal) => runPurge(db, params, signal),
    reset: () => reset(admin),
    close: async () => {
      await own.close();
      await admin.end();
      await database.close();
    },
  };
}

function contextOf(idempotency: IdempotencyKey | null = null): CallContext {
  const actor = { userId, username: 'ann', role: 'editor' as const };
  return { requestId: 'request-1', actor, idempotency, signal: new AbortController().signal };
}

export function nodeOf(response: { node?: Node | undefined }): Node {
  if (!response.node) throw new Error('the response has no node');
  return response.node;
}

export type CommitRequest = ReturnType<typeof commitRequest>;

/** A request for a file of 3 bytes with ids of its own. */
export function commitRequest(name: string, directoryId: string, onConflict: OnConflict = OnConflict.FAIL) {
  const blobId = newId();
  return {
    fileId: newId(),
    directoryId,
    name,
    onConflict,
    mediaType: 'text/plain',
    fileClass: 'document',
    blob: { id: blobId, size: 3n, sha256: randomBytes(32), chunkCrc32c: randomBytes(4) },
    replicas: [{ backendId, key: `blobs/${blobId.slice(-2)}/${blobId}` }],
  };
}

export function idOf(node: Node): { id: string; kind: NodeKind } {
  return { id: node.id, kind: node.kind };
}

async function runPurge(db: Kysely<unknown>, params: JsonObject, signal: AbortSignal): Promise<JsonObject> {
  const job = {
    id: newId(),
    kind: 'purge_recycle_bin',
    params,
    attempt: 1,
    maxAttempts: 5,
    fence: '1',
    traceparent: null,
  };
  return purgeRecycleBin(db, keeping)(job, { signal, progress: () => undefined });
}

async function reset(admin: pg.Pool): Promise<void> {
  await admin.query(
    'truncate catalog.nodes, catalog.replicas, catalog.blobs, jobs.jobs, jobs.outbox, jobs.idempotency_keys',
  );
  await admin.query("insert into catalog.nodes (id, kind, name) values ($1, 'directory', '')", [rootDirectoryId]);
}

/** The code of the error that a call fails with. */
export async function codeOf(call: Promise<unknown>): Promise<string> {
  return call.then(
    () => 'no error',
    (error: unknown) => (error instanceof Error && 'code' in error ? String(error.code) : String(error)),
  );
}

/** Events of the outbox in order, as `verb name`. */
export async function eventsOf(db: Kysely<unknown>): Promise<string[]> {
  const { rows } = await sql<{ event: string }>`
    select replace(subject, 'stowage.files.', '') || ' ' || (data ->> 'name') as event from jobs.outbox
    where subject like 'stowage.files.%' order by position`.execute(db);
  return rows.map((row) => row.event);
}
