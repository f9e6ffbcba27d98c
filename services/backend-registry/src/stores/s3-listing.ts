import type { _Object } from '@aws-sdk/client-s3';
import { unavailable } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import type { BlobPage, ListedBlob, ListedStaged, StagedPage } from './blob-store.ts';
import { checkedId, isBlobKey } from './keys.ts';
import { shortCall } from './s3-calls.ts';
import type { S3Connection } from './s3-connection.ts';

export const stagingFolder = 'staging';

/** What one answer may list. */
const mostKeys = 1_000;

/** An object as the server lists it. */
interface Listed {
  /** Without the prefix of the backend. */
  key: string;
  object: _Object;
}

/** Objects in the order of their keys. */
interface ListedPage {
  objects: Listed[];
  /** After which key the listing goes on; null where it is over. */
  next: string | null;
}

/** One page of blobs, as BlobStore.list says; a cursor is the last key of the page before, without the prefix. */
export async function listBlobs(s3: S3Connection, cursor: string | null, limit: number): Promise<BlobPage> {
  const { objects, next } = await listBelow(s3, 'blobs/', cursor, limit);
  return { blobs: objects.filter(({ key }) => isBlobKey(key)).map(blobOf), next };
}

/** One page of staged content, as AppendableStore.listStaged says; a cursor is the last id of the page before. */
export async function listStaged(s3: S3Connection, cursor: string | null, limit: number): Promise<StagedPage> {
  const found = new Map<string, ListedStaged>();
  // Behind all that lies in the folder of this id.
  let after: string | null = cursor === null ? null : `${stagingFolder}/${checkedId(cursor)}0`;
  do {
    const page: ListedPage = await listBelow(s3, `${stagingFolder}/`, after, mostKeys);
    for (const listed of page.objects) {
      const [, id = ''] = listed.key.split('/');
      if (!isId(id)) continue;
      const before = found.get(id)?.modifiedAt ?? new Date(0);
      const { modifiedAt } = blobOf(listed);
      // Of the one more only that it is there matters: the one before it is whole.
      if (found.size === limit && !found.has(id))
        return { staged: [...found.values()], next: [...found.keys()].at(-1) ?? null };
      found.set(id, { id, modifiedAt: modifiedAt > before ? modifiedAt : before });
    }
    after = page.next;
  } while (after !== null);
  return { staged: [...found.values()], next: null };
}

/**
 * One page of what lies below `folder`, after the key `after`. Throws where the answer can't be the next page: a server that
 * goes back would be listened to for ever.
 */
export async function listBelow(
  s3: S3Connection,
  folder: string,
  after: string | null,
  limit: number,
): Promise<ListedPage> {
  const command = new s3.sdk.ListObjectsV2Command({
    Bucket: s3.bucket,
    Prefix: s3.prefix + folder,
    MaxKeys: Math.min(limit, mostKeys),
    ...(after === null ? {} : { StartAfter: s3.prefix + after }),
    // Names that others gave may hold characters that XML can't.
    EncodingType: 'url',
  });
  const page = await shortCall(s3, (abortSignal) => s3.client.send(command, { abortSignal }));
  const decode = page.EncodingType === 'url' ? decodeKey : (key: string): string => key;
  const objects = (page.Contents ?? []).map((object) => ({ object, key: keyOf(s3, folder, object, decode) }));
  let last = after;
  for (const { key } of objects) {
    if (last !== null && Buffer.compare(Buffer.from(key), Buffer.from(last)) <= 0) {
      throw unavailable('The backend lists in no order, or not from where it was asked to.');
    }
    last = key;
  }
  if (page.IsTruncated && objects.length === 0) throw unavailable('The backend does not go on with its listing.');
  return { objects, next: page.IsTruncated ? last : null };
}

function keyOf(s3: S3Connection, folder: string, object: _Object, decode: (key: string) => string): string {
  const key = object.Key === undefined ? '' : decode(object.Key);
  if (!key.startsWith(s3.prefix + folder)) throw unavailable('The backend lists what was not asked for.');
  return key.slice(s3.prefix.length);
}

function blobOf({ key, object: { Size, LastModified } }: Listed): ListedBlob {
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
