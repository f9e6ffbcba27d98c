import { lstat, readdir } from 'node:fs/promises';
import path from 'node:path';
import { isId } from '@stowage/common/ids';
import type { BlobPage, ListedBlob, ListedStaged, StagedPage } from './blob-store.ts';
import { directoryInside, nullIfMissing } from './local-files.ts';
import { checkedId, isBlobKey, parseBlobKey } from './keys.ts';
import { limitFileOf } from './staged-file.ts';

/** Files that are looked at side by side: a disk on the network answers each only after its round trip. */
const statsAtOnce = 64;

/**
 * One page of the blobs in the folders of `blobs`, in the order of their keys; a cursor is the key of the last one before.
 * Holds the names of one folder, 1/256 of all, in memory.
 */
export async function listFolders(blobs: string, cursor: string | null, limit: number): Promise<BlobPage> {
  const first = cursor === null ? '' : parseBlobKey(cursor).folder;
  const found: ListedBlob[] = [];
  for (const { folder, directory } of await blobFolders(blobs)) {
    if (folder < first) continue;
    const keys = (await keysIn(directory, folder)).filter((key) => cursor === null || key > cursor);
    for (let start = 0; start < keys.length;) {
      const some = keys.slice(start, start + Math.min(statsAtOnce, limit - found.length));
      start += some.length;
      const blobs = await Promise.all(some.map((key) => listed(directory, key)));
      found.push(...blobs.filter((blob) => blob !== null));
      const last = some.at(-1);
      if (found.length >= limit && last !== undefined) return { blobs: found, next: last };
    }
  }
  return { blobs: found, next: null };
}

/** One page of the content in the folder `staging`; a cursor is the id of the last one before. */
export async function listStagedFiles(staging: string, cursor: string | null, limit: number): Promise<StagedPage> {
  const after = cursor === null ? '' : checkedId(cursor);
  // A side file counts too: it may be all that is left.
  const ids = (await readdir(staging)).map((name) => path.parse(name).name).filter((id) => isId(id) && id > after);
  const found: ListedStaged[] = [];
  for (const id of [...new Set(ids)].sort()) {
    const files = [path.join(staging, id), limitFileOf(staging, id)];
    const stats = await Promise.all(files.map((file) => lstat(file).catch(nullIfMissing)));
    const times = stats.flatMap((one) => (one?.isFile() ? [one.mtimeMs] : []));
    if (times.length === 0) continue;
    found.push({ id, modifiedAt: new Date(Math.max(...times)) });
    if (found.length >= limit) return { staged: found, next: id };
  }
  return { staged: found, next: null };
}

/** Null for what is no file, or not there any more. */
async function listed(directory: string, key: string): Promise<ListedBlob | null> {
  const stats = await lstat(path.join(directory, path.basename(key))).catch(nullIfMissing);
  return stats?.isFile() ? { key, size: stats.size, modifiedAt: stats.mtime } : null;
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
