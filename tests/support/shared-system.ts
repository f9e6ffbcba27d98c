import { startEmbeddedPostgres } from '@stowage/launcher/embedded-postgres';
import type { EmbeddedPostgres } from '@stowage/launcher/embedded-postgres';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startSystem } from './system.ts';
import type { Mode, System } from './system.ts';

/** What jest's set-up starts once a run and its teardown ends. */
interface Shared {
  postgres: Promise<{ server: EmbeddedPostgres; directory: string }> | null;
  systems: System[];
}

const shared: Shared = { postgres: null, systems: [] };

/** The variable through which tests find the shared system of a mode. */
export function urlVariable(mode: Mode): string {
  return `STOWAGE_TEST_URL_${mode.toUpperCase()}`;
}

/** One PostgreSQL for the whole run; each suite has databases of its own on it. */
export async function sharePostgres(): Promise<void> {
  shared.postgres ??= startPostgres();
  const { server } = await shared.postgres;
  process.env['STOWAGE_TEST_POSTGRES_URL'] = server.url;
}

async function startPostgres(): Promise<{ server: EmbeddedPostgres; directory: string }> {
  const directory = await mkdtemp(join(tmpdir(), 'stowage-test-postgres-'));
  await chmod(directory, 0o755);
  const server = await startEmbeddedPostgres({
    directory,
    log: () => undefined,
    settings: { fsync: 'off', max_connections: '400' },
  });
  return { server, directory };
}

/** One whole system for the contract tests of a mode. */
export async function shareSystem(mode: Mode): Promise<void> {
  await sharePostgres();
  if (process.env[urlVariable(mode)]) return;
  const system = await startSystem(mode);
  shared.systems.push(system);
  process.env[urlVariable(mode)] = system.url;
}

export async function endShared(): Promise<void> {
  await Promise.all(shared.systems.splice(0).map((system) => system.close()));
  const postgres = await shared.postgres;
  shared.postgres = null;
  await postgres?.server.stop();
  if (postgres) await rm(postgres.directory, { recursive: true, force: true });
}
