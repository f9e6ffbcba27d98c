import { unavailable } from '@stowage/common/errors';
import { backendIdIn, markerName, markerText, maxMarkerBytes, requireClaimed } from './identity-marker.ts';
import { shortCall } from './s3-calls.ts';
import type { S3Connection } from './s3-connection.ts';
import { hasStatus, isMissing } from './s3-errors.ts';

/** The backend id in the marker; null when there is none, or no id in it. */
export async function readMarker(s3: S3Connection): Promise<string | null> {
  const text = await readText(s3);
  return text === null ? null : backendIdIn(text);
}

/** Writes the marker as BlobStore.claim says. */
export async function claimMarker(s3: S3Connection, backendId: string): Promise<void> {
  const text = await readText(s3);
  if (text === null) await putMarker(s3, backendId);
  // Also right after it was put: some servers overwrite what was to be left alone.
  requireClaimed(await readMarker(s3), backendId);
}

/** Puts the marker where there is none yet. */
async function putMarker(s3: S3Connection, backendId: string): Promise<void> {
  const marker = { ...place(s3), Body: markerText(backendId), ContentType: 'application/json' };
  const put = (condition: { IfNoneMatch?: string }): Promise<unknown> =>
    shortCall(s3, (abortSignal) =>
      s3.client.send(new s3.sdk.PutObjectCommand({ ...marker, ...condition }), { abortSignal }),
    );
  await put({ IfNoneMatch: '*' }).catch((error: unknown) => {
    // Another was there first, or is just being written.
    if (hasStatus(error, 409, 412)) return;
    // This server knows no conditions.
    if (hasStatus(error, 501)) return put({});
    throw error;
  });
}

async function readText(s3: S3Connection): Promise<string | null> {
  const command = new s3.sdk.GetObjectCommand(place(s3));
  return shortCall(s3, async (signal) => {
    const own = new AbortController();
    const abortSignal = AbortSignal.any([signal, own.signal]);
    try {
      const found = await s3.client.send(command, { abortSignal });
      if (!found.Body) throw unavailable('The backend gave no content.');
      // Nothing that long is a marker; it is not even read.
      if ((found.ContentLength ?? Infinity) > maxMarkerBytes) return '';
      return await found.Body.transformToString();
    } catch (error) {
      if (isMissing(error)) return null;
      throw error;
    } finally {
      own.abort();
    }
  });
}

function place(s3: S3Connection): { Bucket: string; Key: string } {
  return { Bucket: s3.bucket, Key: `${s3.prefix}${markerName}` };
}
