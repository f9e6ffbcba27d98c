import { pino } from 'pino';
import pg from 'pg';
import { openDatabase } from '@stowage/common/database/database';
import type { Database } from '@stowage/common/database/database';
import { startTestDatabase } from '@stowage/tests/support/test-database';

/** A database with the role of this service, and as superuser. */
export interface TestMetadata {
  /** The superuser's. */
  url: string;
  database: Database;
  admin: pg.Pool;
  close(): Promise<void>;
}

export async function startTestMetadata(): Promise<TestMetadata> {
  const server = await startTestDatabase();
  const logger = pino({ level: 'silent' });
  const database = openDatabase({ url: server.url, service: 'export', connections: 4, logger });
  const admin = new pg.Pool({ connectionString: server.url, max: 2 });
  admin.on('error', () => undefined);
  return {
    url: server.url,
    database,
    admin,
    close: async () => {
      await Promise.all([database.close(), admin.end()]);
      await server.close();
    },
  };
}
