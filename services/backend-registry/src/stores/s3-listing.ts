import type { _Object } from '@aws-sdk/client-s3';
import { unavailable } from '@stowage/common/errors';
import type { BlobPage, ListedBlob } from './blob-store.ts';
import { isBlobKey } from './keys.ts';
import { shortCall } from './s3-calls.ts';
import type { S3Connection } from './s3-connection.ts';

/** One page of blobs, as BlobStore.list says; a cursor is the last key of the page before, without the prefix. */
export async function listBlobs(s3: S3Connection, cursor: string | null, limit: number): Promise<BlobPage> {
  const command = new s3.sdk.ListObjectsV2Command({
    Bucket: s3.bucket,
    Prefix: `${s3.prefix}blobs/`,
    MaxKeys: Math.min(limit, 1_000),
    ...(cursor === null ? {} : { StartAfter: s3.prefix + cursor }),
    // Names that others gave may hold characters that XML can't.
    EncodingType: 'url',
  });
  const page = await shortCall(s3, (abortSignal) => s3.client.send(command, { abortSignal }));
  const decode = page.EncodingType === 'url' ? decodeKey : (key: string): string => key;
  const objects = (page.Contents ?? []).map((object) => ({ object, key: pathOf(s3, object, decode) }));
  const last = objects.at(-1)?.key ?? null;
  if (page.IsTruncated && (last === null || last === cursor)) {
    throw unavailable('The backend does not go on with its listing.');
  }
  return {
    blobs: objects.filter(({ key }) => isBlobKey(key)).map(({ object, key }) => blobOf(object, key)),
    next: page.IsTruncated ? last : null,
  };
}

function pathOf(s3: S3Connection, object: _Object, decode: (key: string) => string): string {
  const key = object.Key === undefined ? '' : decode(object.Key);
  if (!key.startsWith(s3.prefix)) throw unavailable('The backend lists what was not asked for.');
  return key.slice(s3.prefix.length);
}

function blobOf({ Size, LastModified }: _Object, key: string): ListedBlob {
  if (Size === undefined || LastModified === undefined) throw unavailable('The listing of the backend is not whole.');
  return { key, size: Size, modifiedAt: LastModified };
}

function decodeKey(key: string): string {
  try {
    return decodeURIComponent(key.replaceAll('+', ' '));
  } catch (error) {
    throw unavailable('The listing of the backend can not be read.', error);
  }
}
