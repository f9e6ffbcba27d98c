import { isId } from '@stowage/common/ids';
import { AppError } from '@stowage/common/errors';

/**
 * The fixed key of a blob on every backend. The folder is taken from the end of the id: a UUIDv7 begins with the
 * time, which would put all blobs of an era into one folder.
 */
export function blobKey(blobId: string): string {
  return `blobs/${blobId.slice(-2)}/${checkedId(blobId)}`;
}

/** The parts of a key that blobKey() made; throws `validation_failed` for any other text. */
export function parseBlobKey(key: string): { folder: string; blobId: string } {
  const [, folder = '', blobId = ''] = key.split('/');
  if (!isBlobKey(key)) throw new AppError('validation_failed', 'This is not the key of a blob.');
  return { folder, blobId };
}

/** Whether blobKey() made this text. */
export function isBlobKey(text: string): boolean {
  const blobId = text.slice(text.lastIndexOf('/') + 1);
  return isId(blobId) && text === `blobs/${blobId.slice(-2)}/${blobId}`;
}

/** The id itself; throws `validation_failed` for text that is no id, so that no other text ever becomes a path. */
export function checkedId(id: string): string {
  if (!isId(id)) throw new AppError('validation_failed', 'This is not the id of staged content or of a blob.');
  return id;
}
