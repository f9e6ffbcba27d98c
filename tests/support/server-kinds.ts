import { once } from 'node:events';
import { connect } from 'node:net';
import { join } from 'node:path';

const user = 'test';
const password = 'testtest';

/** A kind of server that tests use, and how to start one. */
export interface ServerKind {
  /** What tests call to have one. */
  used: string;
  /** The variable that names one which runs already. */
  variable: string;
  program: string;
  arguments(folder: string, port: number): string[];
  environment: Record<string, string>;
  /** The variables through which tests know it. */
  settings(port: number): Record<string, string>;
  /** Throws, or is false, until it answers. */
  answers(port: number): Promise<boolean>;
}

export const serverKinds = {
  S3: {
    variable: 'STOWAGE_TEST_S3_URL',
    used: 's3Server(',
    program: 'minio',
    arguments: (folder, port) => [
      ...['--config-dir', join(folder, 'config'), '--quiet'],
      ...['server', '--address', `127.0.0.1:${port}`, join(folder, 'data')],
    ],
    environment: { MINIO_ROOT_USER: user, MINIO_ROOT_PASSWORD: password, MINIO_BROWSER: 'off', MINIO_UPDATE: 'off' },
    settings: (port) => ({
      STOWAGE_TEST_S3_URL: `http://127.0.0.1:${port}`,
      STOWAGE_TEST_S3_ACCESS_KEY: user,
      STOWAGE_TEST_S3_SECRET_KEY: password,
    }),
    answers: async (port) => (await fetch(`http://127.0.0.1:${port}/minio/health/ready`)).ok,
  },
  WebDAV: {
    variable: 'STOWAGE_TEST_WEBDAV_URL',
    used: 'webdavServer(',
    program: 'rclone',
    arguments: (folder, port) => [
      ...['serve', 'webdav', join(folder, 'data'), '--config', '/dev/null', '--cache-dir', join(folder, 'cache')],
      ...['--addr', `127.0.0.1:${port}`, '--user', user, '--pass', password],
    ],
    environment: {},
    settings: (port) => ({
      STOWAGE_TEST_WEBDAV_URL: `http://127.0.0.1:${port}/`,
      STOWAGE_TEST_WEBDAV_USER: user,
      STOWAGE_TEST_WEBDAV_PASSWORD: password,
    }),
    answers: async (port) => (await fetch(`http://127.0.0.1:${port}/`)).status === 401,
  },
  NATS: {
    variable: 'STOWAGE_TEST_NATS_URL',
    used: 'natsServer(',
    program: 'nats-server',
    arguments: (folder, port) => [
      ...['--addr', '127.0.0.1', '--port', String(port)],
      ...['--jetstream', '--store_dir', join(folder, 'data'), '--user', user, '--pass', password],
    ],
    environment: {},
    settings: (port) => ({ STOWAGE_TEST_NATS_URL: `nats://${user}:${password}@127.0.0.1:${port}` }),
    answers: natsAnswers,
  },
} satisfies Record<string, ServerKind>;

async function natsAnswers(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  try {
    const [greeting]: unknown[] = await once(socket, 'data', { signal: AbortSignal.timeout(5_000) });
    return String(greeting).startsWith('INFO ');
  } finally {
    socket.destroy();
  }
}
