import { lstat, readdir } from 'node:fs/promises';
import path from 'node:path';
import type { BlobPage, ListedBlob } from './blob-store.ts';
import { directoryInside, nullIfMissing } from './local-files.ts';
import { isBlobKey, parseBlobKey } from './keys.ts';

/**
 * One page of the blobs in the folders of `blobs`, in the order of their keys; a cursor is the key of the last one before.
 * Holds the names of one folder, 1/256 of all, in memory.
 */
export async function listFolders(blobs: string, cursor: string | null, limit: number): Promise<BlobPage> {
  const first = cursor === null ? '' : parseBlobKey(cursor).folder;
  const found: ListedBlob[] = [];
  for (const { folder, directory } of await blobFolders(blobs)) {
    if (folder < first) continue;
    for (const key of await keysIn(directory, folder)) {
      if (cursor !== null && key <= cursor) continue;
      const stats = await lstat(path.join(directory, path.basename(key))).catch(nullIfMissing);
      if (!stats?.isFile()) continue;
      found.push({ key, size: stats.size, modifiedAt: stats.mtime });
      if (found.length >= limit) return { blobs: found, next: key };
    }
  }
  return { blobs: found, next: null };
}

/** The folders that blobs lie in, in order. */
export async function blobFolders(blobs: string): Promise<{ folder: string; directory: string }[]> {
  const found: { folder: string; directory: string }[] = [];
  for (const folder of (await readdir(blobs)).sort()) {
    if (!/^[0-9a-f]{2}$/.test(folder)) continue;
    const directory = await directoryInside(blobs, folder);
    if (directory !== null) found.push({ folder, directory });
  }
  return found;
}

async function keysIn(directory: string, folder: string): Promise<string[]> {
  const names = await readdir(directory);
  return names
    .map((name) => `blobs/${folder}/${name}`)
    .filter(isBlobKey)
    .sort();
}
