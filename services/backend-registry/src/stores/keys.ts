import { isId } from '@stowage/common/ids';
import { AppError } from '@stowage/common/errors';

/**
 * The fixed key of a blob on every backend. The folder is taken from the end of the id: a UUIDv7 begins with the
 * time, which would put all blobs of an era into one folder.
 */
export function blobKey(blobId: string): string {
  return `blobs/${blobId.slice(-2)}/${checkedId(blobId)}`;
}

/** Where an object lies: the path of its folder below the root, and its name there. */
export interface ObjectPlace {
  folder: string;
  name: string;
}

/** The place of a blob, or of a kept export; throws `validation_failed` for a text that is the key of neither. */
export function placeOfKey(key: string): ObjectPlace {
  if (!isBlobKey(key) && !isExportKey(key)) {
    throw new AppError('validation_failed', 'This is not the key of a blob or of an export.');
  }
  const slash = key.lastIndexOf('/');
  return { folder: key.slice(0, slash), name: key.slice(slash + 1) };
}

/** Whether exportKey() made this text. */
export function isExportKey(text: string): boolean {
  const [, id = ''] = /^exports\/\d{8}T\d{6}Z-([0-9a-f-]{36})\.json\.gz$/.exec(text) ?? [];
  return isId(id);
}

/** Throws `validation_failed` for a text that is not the key of an export. */
export function requireExportKey(key: string): void {
  if (!isExportKey(key)) throw new AppError('validation_failed', 'This is not the key of an export.');
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
