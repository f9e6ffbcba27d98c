import { describe, test } from '@jest/globals';

/** An S3 server for tests; each test makes a bucket or a prefix of its own. */
export interface S3Server {
  url: string;
  accessKey: string;
  secretKey: string;
}

/** A WebDAV server for tests; each test makes a folder of its own. */
export interface WebdavServer {
  url: string;
  user: string;
  password: string;
}

/** A NATS server with JetStream for tests; each test makes a stream of its own. */
export interface NatsServer {
  /** With user and password in it. */
  url: string;
}

/** The S3 server of this run; null when there is none. */
export function s3Server(): S3Server | null {
  const url = process.env['STOWAGE_TEST_S3_URL'];
  const accessKey = process.env['STOWAGE_TEST_S3_ACCESS_KEY'];
  const secretKey = process.env['STOWAGE_TEST_S3_SECRET_KEY'];
  return url && accessKey && secretKey ? { url, accessKey, secretKey } : null;
}

/** The WebDAV server of this run; null when there is none. */
export function webdavServer(): WebdavServer | null {
  const url = process.env['STOWAGE_TEST_WEBDAV_URL'];
  const user = process.env['STOWAGE_TEST_WEBDAV_USER'];
  const password = process.env['STOWAGE_TEST_WEBDAV_PASSWORD'];
  return url && user && password ? { url, user, password } : null;
}

/** The NATS server of this run; null when there is none. */
export function natsServer(): NatsServer | null {
  const url = process.env['STOWAGE_TEST_NATS_URL'];
  return url ? { url } : null;
}

/**
 * A suite that needs a real server, as in `describeWith('S3', s3Server(), (server) => …)`. Without one it is skipped by
 * name, or fails where CI is set.
 */
export function describeWith<Server>(kind: string, server: Server | null, suite: (server: Server) => void): void {
  if (server) describe(`on a real ${kind} server`, () => suite(server));
  else if (process.env['CI']) test(`needs a server for ${kind}`, () => Promise.reject(new Error(missing(kind))));
  else test.skip(`needs a server for ${kind}`, () => undefined);
}

function missing(kind: string): string {
  return `There is no server for ${kind}: tests/support/share-servers.ts says where one is looked for.`;
}
