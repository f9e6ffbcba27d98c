import type { MultipartUpload } from '@aws-sdk/client-s3';
import { unavailable } from '@stowage/common/errors';
import { isBlobKey } from './keys.ts';
import { shortCall } from './s3-calls.ts';
import type { S3Connection } from './s3-connection.ts';
import { abortUpload } from './s3-multipart.ts';
import { stagingFolder } from './s3-segments.ts';

/** Aborts our multipart uploads that were begun before `before`; gives how many. */
export async function sweepUploads(s3: S3Connection, before: Date): Promise<number> {
  let swept = 0;
  let marker: { KeyMarker?: string; UploadIdMarker?: string } = {};
  for (;;) {
    // Without a prefix, as MinIO takes one for a whole key.
    const command = new s3.sdk.ListMultipartUploadsCommand({ Bucket: s3.bucket, ...marker });
    const page = await shortCall(s3, (abortSignal) => s3.client.send(command, { abortSignal }));
    for (const upload of page.Uploads ?? []) {
      if (!isAbandoned(s3, upload, before)) continue;
      await abortUpload(s3, { Bucket: s3.bucket, Key: upload.Key, UploadId: upload.UploadId });
      swept += 1;
    }
    if (!page.IsTruncated) return swept;
    if (
      !page.NextKeyMarker ||
      (page.NextKeyMarker === marker.KeyMarker && page.NextUploadIdMarker === marker.UploadIdMarker)
    ) {
      throw unavailable('The backend does not go on with its listing.');
    }
    marker = {
      KeyMarker: page.NextKeyMarker,
      ...(page.NextUploadIdMarker ? { UploadIdMarker: page.NextUploadIdMarker } : {}),
    };
  }
}

function isOurs(path: string): boolean {
  return isBlobKey(path) || new RegExp(`^${stagingFolder}/[^/]+/\\d{16}$`).test(path);
}

function isAbandoned(
  s3: S3Connection,
  upload: MultipartUpload,
  before: Date,
): upload is MultipartUpload & { Key: string; UploadId: string } {
  const { Key, UploadId, Initiated } = upload;
  if (!Key?.startsWith(s3.prefix) || !UploadId || !Initiated) return false;
  return isOurs(Key.slice(s3.prefix.length)) && Initiated < before;
}
