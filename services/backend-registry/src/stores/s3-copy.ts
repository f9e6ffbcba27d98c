import type { ServerCopy } from './blob-store.ts';
import { assemble } from './s3-assemble.ts';
import { shortCall } from './s3-calls.ts';
import type { S3Config } from './s3-config.ts';
import type { S3Connection } from './s3-connection.ts';
import { isMissing } from './s3-errors.ts';

/** Whether one server has both, and lets the same user read and write both. */
export function haveOneServer(one: S3Config, other: S3Config): boolean {
  const same = ['endpoint', 'region', 'accessKeyId', 'secretAccessKey', 'sessionToken'] as const;
  return same.every((key) => one[key] === other[key]);
}

/** A copy that the server makes of the object `from`, as it is now; null when there is none. */
export async function pinCopy(
  source: S3Connection,
  from: string,
  target: S3Connection,
  to: string,
): Promise<ServerCopy | null> {
  const head = new source.sdk.HeadObjectCommand({ Bucket: source.bucket, Key: from });
  const found = await shortCall(source, (abortSignal) => source.client.send(head, { abortSignal })).catch(
    (error: unknown) => {
      if (isMissing(error)) return null;
      throw error;
    },
  );
  if (found?.ContentLength === undefined || !found.ETag) return null;
  const piece = { bucket: source.bucket, objectKey: from, size: found.ContentLength, etag: found.ETag };
  return { make: (signal) => assemble(target, [piece], to, { resume: false, signal }) };
}
