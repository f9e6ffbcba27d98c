import type { MultipartUpload } from '@aws-sdk/client-s3';
import { unavailable } from '@stowage/common/errors';
import { isBlobKey, isExportKey } from './keys.ts';
import { shortCall } from './s3-calls.ts';
import type { S3Connection } from './s3-connection.ts';
import { stagingFolder } from './s3-listing.ts';
import { abortUpload, uploadedParts } from './s3-multipart.ts';
import type { Upload } from './s3-multipart.ts';

/** Of a thousand uploads each: a listing that is longer has no end. */
const mostPages = 1_000;

/** Aborts our multipart uploads that were begun before `before` and got no part since; gives how many. */
export async function sweepUploads(s3: S3Connection, before: Date): Promise<number> {
  let swept = 0;
  let marker: { KeyMarker?: string; UploadIdMarker?: string } = {};
  for (let pages = 0; pages < mostPages; pages += 1) {
    // Without a prefix, as MinIO takes one for a whole key.
    const command = new s3.sdk.ListMultipartUploadsCommand({ Bucket: s3.bucket, ...marker });
    const page = await shortCall(s3, (abortSignal) => s3.client.send(command, { abortSignal }));
    for (const found of page.Uploads ?? []) {
      const upload = oldUpload(s3, found, before);
      if (!upload || (await isGrowing(s3, upload, before))) continue;
      await abortUpload(s3, upload);
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
  throw unavailable('The backend does not come to an end with its listing.');
}

function isOurs(path: string): boolean {
  return isBlobKey(path) || isExportKey(path) || new RegExp(`^${stagingFolder}/[^/]+/\\d{16}$`).test(path);
}

/** Null for one that is not ours, or too young. */
function oldUpload(s3: S3Connection, { Key, UploadId, Initiated }: MultipartUpload, before: Date): Upload | null {
  if (!Key?.startsWith(s3.prefix) || !UploadId || !Initiated || Initiated >= before) return null;
  return isOurs(Key.slice(s3.prefix.length)) ? { Bucket: s3.bucket, Key, UploadId } : null;
}

/** The longest blobs take days, but none of their parts does. */
async function isGrowing(s3: S3Connection, upload: Upload, before: Date): Promise<boolean> {
  const parts = await uploadedParts(s3, upload);
  return parts.some(({ LastModified }) => LastModified === undefined || LastModified >= before);
}
