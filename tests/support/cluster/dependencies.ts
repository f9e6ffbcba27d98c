import pg from 'pg';
import { kubectl } from './commands.ts';

const namespace = 'deps';
const ports = { postgres: 5432, nats: 4222, s3: 9000, webdav: 8080 };

/** The servers of deps.yaml (../shared/cluster), which all have the same user. */
export type Dependency = keyof typeof ports;
export const user = 'test';
export const password = 'testtest';

/** `host:port` as pods say it. */
export function nameOf(dependency: Dependency): string {
  return `${dependency}.${namespace}.svc.cluster.local:${ports[dependency]}`;
}

/** `host:port` that both pods and tests reach: tests have no DNS of the cluster. */
export async function addressOf(dependency: Dependency): Promise<string> {
  const query = ['-n', namespace, 'get', 'service', dependency, '-o', 'jsonpath={.spec.clusterIP}'];
  return `${await kubectl(query)}:${ports[dependency]}`;
}

/** A database of that name, empty. */
export interface ClusterDatabase {
  /** As pods say it. */
  url: string;
  /** As tests say it. */
  testUrl: string;
  /** Removes it, with the connections to it. */
  drop(): Promise<void>;
}

/** Makes an empty database on the PostgreSQL of deps.yaml; one of that name that is there already goes first. */
export async function makeDatabase(name: string): Promise<ClusterDatabase> {
  const server = `postgresql://${user}:${password}@${await addressOf('postgres')}`;
  const drop = (): Promise<void> => query(server, `drop database if exists "${name}" with (force)`);
  await drop();
  await query(server, `create database "${name}"`);
  return {
    url: `postgresql://${user}:${password}@${nameOf('postgres')}/${name}`,
    testUrl: `${server}/${name}`,
    drop,
  };
}

async function query(server: string, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: `${server}/${user}`, connectionTimeoutMillis: 10_000 });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}

/** The variables by which tests find the real S3 and WebDAV servers, as tests/support/server-kinds.ts names them. */
export async function serverSettings(): Promise<Record<string, string>> {
  return {
    STOWAGE_TEST_S3_URL: `http://${await addressOf('s3')}`,
    STOWAGE_TEST_S3_ACCESS_KEY: user,
    STOWAGE_TEST_S3_SECRET_KEY: password,
    STOWAGE_TEST_WEBDAV_URL: `http://${await addressOf('webdav')}/`,
    STOWAGE_TEST_WEBDAV_USER: user,
    STOWAGE_TEST_WEBDAV_PASSWORD: password,
  };
}
