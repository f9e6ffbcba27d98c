import { makeBucket } from '../driver/s3-puts.ts';
import type { S3Account } from '../driver/s3-signature.ts';
import { startServer } from '../../../tests/support/share-servers.ts';

/** A real S3 server with an empty bucket. */
export interface S3Server extends S3Account {
  pid: number;
  close(): Promise<void>;
}

/** Starts one as the tests do, from PATH or the cache of the test cluster. Throws where there is no program for it. */
export async function startS3Server(): Promise<S3Server> {
  const server = await startServer('S3');
  if (!server) throw new Error('there is no minio on PATH or in ~/.cache/test-cluster/bin');
  const { settings } = server;
  const account = {
    endpoint: settings['STOWAGE_TEST_S3_URL'] ?? '',
    accessKey: settings['STOWAGE_TEST_S3_ACCESS_KEY'] ?? '',
    secretKey: settings['STOWAGE_TEST_S3_SECRET_KEY'] ?? '',
    bucket: 'bench',
  };
  // It answers before it can take the first bucket.
  for (let left = 100; ; left -= 1) {
    try {
      await makeBucket(account);
      break;
    } catch (error) {
      if (left === 0) {
        await server.close();
        throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
  return { ...account, pid: server.process.pid ?? 0, close: () => server.close() };
}
