import { LocalConnections } from '@stowage/common/rpc/connections';
import { openDatabase } from '@stowage/common/database/database';
import { appendUpload, createUploadWithBody } from '@stowage/common/bytes/operations';
import type { Uploader } from '@stowage/common/bytes/operations';
import { AppError } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import { WakeListener } from '@stowage/common/jobs/wake-listener';
import type { CallContext, Role } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import { Lifecycle } from '@stowage/common/runtime/lifecycle';
import { createLogger } from '@stowage/common/runtime/logger';
import { readSettings } from '@stowage/common/runtime/settings';
import type { Environment } from '@stowage/common/runtime/settings';
import { commonSettings } from '@stowage/common/runtime/common-settings';
import type {
  AppendUploadRequestSchema,
  AppendUploadResponseSchema,
  Upload,
} from '@stowage/proto/stowage/upload/v1/upload';
import { UploadService } from '@stowage/proto/stowage/upload/v1/upload';
import { startTestDatabase } from '@stowage/tests/support/test-database';
import { Readable } from 'node:stream';
import pg from 'pg';
import { FakeNeighbours } from './test-neighbours.ts';
import { serviceProcess } from './service.ts';
import { uploadSettings } from './settings.ts';

/** One process of the service under test. */
export interface TestProcess {
  uploads: Client<typeof UploadService>;
  append: Uploader<typeof AppendUploadRequestSchema, typeof AppendUploadResponseSchema>;
  createWithBody: Uploader<typeof createUploadWithBody.input, typeof createUploadWithBody.output>;
  stop(): Promise<void>;
}

/** A database, fakes of the services around, and as many processes of the service as a test starts. */
export interface TestUploads {
  neighbours: FakeNeighbours;
  /** The superuser's. */
  url: string;
  /** As the superuser. */
  sql<R extends pg.QueryResultRow>(text: string, values?: unknown[]): Promise<R[]>;
  start(environment?: Environment): Promise<TestProcess>;
  close(): Promise<void>;
}

export async function startTestUploads(): Promise<TestUploads> {
  const database = await startTestDatabase();
  const pool = new pg.Pool({ connectionString: database.url, max: 2 });
  pool.on('error', () => undefined);
  const neighbours = new FakeNeighbours();
  const processes = new Set<TestProcess>();
  await pool.query(
    `insert into registry.backends (id, name, type, is_default, config)
     values ($1, 'local', 'local_directory', true, '{}'), ($2, 'second', 'local_directory', false, '{}')`,
    [neighbours.backendId, neighbours.secondId],
  );
  return {
    neighbours,
    url: database.url,
    sql: async <R extends pg.QueryResultRow>(text: string, values: unknown[] = []) =>
      (await pool.query<R>(text, values)).rows,
    async start(environment = {}) {
      const started = await startProcess(database.url, neighbours, environment);
      processes.add(started);
      return started;
    },
    async close() {
      await Promise.all([...processes].map((started) => started.stop()));
      await pool.end();
      await database.close();
    },
  };
}

async function startProcess(url: string, neighbours: FakeNeighbours, environment: Environment): Promise<TestProcess> {
  const logger = createLogger('test', 'silent');
  const { common, own } = readSettings(
    { common: commonSettings, own: uploadSettings },
    { STOWAGE_JOB_INTERVAL: '1h', ...environment },
  );
  const database = openDatabase({ url, service: 'upload', connections: 10, logger });
  const connections = new LocalConnections(logger);
  neighbours.join(connections);
  const wake = new WakeListener(url, logger);
  const service = serviceProcess.create(own, {
    common,
    logger,
    database,
    connections,
    wake,
    lifecycle: new Lifecycle(logger),
  });
  connections.add('upload', service.endpoints, service.byteEndpoints);
  wake.start();
  await service.start();
  let stopped: Promise<void> | null = null;
  const stop = async (): Promise<void> => {
    await service.stop();
    await wake.close();
    await database.close();
  };
  return {
    uploads: connections.client(UploadService),
    append: connections.uploader(appendUpload),
    createWithBody: connections.uploader(createUploadWithBody),
    stop: () => (stopped ??= stop()),
  };
}

/** A call of a user. */
export function as(userId: string, more: Partial<CallContext> & { role?: Role } = {}): CallContext {
  const { role = 'editor', ...rest } = more;
  return {
    requestId: newId(),
    actor: { userId, username: 'ann', role },
    idempotency: null,
    signal: new AbortController().signal,
    ...rest,
  };
}

/** What a call was refused with. */
export async function refusalOf(call: Promise<unknown>): Promise<AppError> {
  try {
    await call;
  } catch (error) {
    if (error instanceof AppError) return error;
    throw error;
  }
  throw new Error('the call was not refused');
}

/** The upload of an answer. */
export function uploadOf(answer: { upload?: Upload | undefined }): Upload {
  if (!answer.upload) throw new Error('the answer holds no upload');
  return answer.upload;
}

export function bodyOf(...pieces: string[]): Readable {
  return Readable.from(
    pieces.map((piece) => Buffer.from(piece)),
    { objectMode: false },
  );
}

/** Waits until `check` gives something other than undefined or false. */
export async function until<R>(check: () => Promise<R | undefined | false> | R | undefined | false): Promise<R> {
  const limit = Date.now() + 20_000;
  for (;;) {
    const found = await check();
    if (found !== undefined && found !== false) return found;
    if (Date.now() > limit) throw new Error('it did not happen in time');
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
