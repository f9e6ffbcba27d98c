import type { MessageInitShape } from '@bufbuild/protobuf';
import { unavailable, validationError } from '@stowage/common/errors';
import type {
  ListStoredBlobsRequest,
  ListStoredBlobsResponseSchema,
} from '@stowage/proto/stowage/backend_registry/v1/stored';
import type { OpenBackends } from './open-backend.ts';
import type { ListedBlob } from './stores/blob-store.ts';
import { parseBlobKey } from './stores/keys.ts';

const limitMax = 1_000;

/**
 * Lists one page of what lies on a backend. Its marker is looked at before the first page and after the last one, and on
 * the way as often as it is for reading: a disk that was unmounted meanwhile is `unavailable`, not empty.
 */
export async function listStored(
  backends: OpenBackends,
  { backendId, cursor, limit }: ListStoredBlobsRequest,
): Promise<MessageInitShape<typeof ListStoredBlobsResponseSchema>> {
  if (limit < 1 || limit > limitMax) {
    throw validationError([{ pointer: '/limit', detail: `must be from 1 to ${limitMax}` }]);
  }
  const store = cursor === '' ? await backends.recheck(backendId) : await backends.open(backendId);
  const page = await store.list(cursor === '' ? null : cursor, limit);
  requireOrder(page.blobs);
  if (page.next === null) await backends.recheck(backendId);
  return {
    items: page.blobs.map(({ key, size, modifiedAt }) => ({
      blobId: parseBlobKey(key).blobId,
      size: BigInt(size),
      modifiedAtMs: BigInt(modifiedAt.getTime()),
    })),
    ...(page.next === null ? {} : { nextCursor: page.next }),
  };
}

/** What is not in order can't be compared, and hides what it leaves out. */
function requireOrder(blobs: readonly ListedBlob[]): void {
  for (const [index, { key }] of blobs.entries()) {
    const before = blobs[index - 1];
    if (before && before.key >= key) throw unavailable('The backend does not list in the order of keys.');
  }
}
