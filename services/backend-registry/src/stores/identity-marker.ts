import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { link, lstat, rename } from 'node:fs/promises';
import path from 'node:path';
import { AppError } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import {
  hasCode,
  nullIfMissing,
  openRegular,
  removeIfThere,
  syncDirectory,
  temporaryOf,
  writeDurably,
} from './local-files.ts';

/** The file in the root of a backend that says which backend it is. */
export const markerName = '.stowage-backend.json';

/** More than any marker holds. */
export const maxMarkerBytes = 4_096;

/** What file systems without hard links answer, such as some network shares. */
const linksUnknown = ['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS'];

/** The backend id in the marker under `root`; null when there is no marker, or no id in it. */
export async function readMarker(root: string): Promise<string | null> {
  const opened = await openRegular(path.join(root, markerName), constants.O_RDONLY);
  if (!opened) return null;
  const { handle } = opened;
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(maxMarkerBytes), 0, maxMarkerBytes, 0);
    return backendIdIn(buffer.toString('utf8', 0, bytesRead));
  } finally {
    await handle.close();
  }
}

/** Which file the marker is: another text for each other file, or change of it; null when there is none. */
export async function markerFile(root: string): Promise<string | null> {
  const found = await lstat(path.join(root, markerName), { bigint: true }).catch(nullIfMissing);
  return found && [found.dev, found.ino, found.size, found.mtimeNs, found.ctimeNs].join();
}

/** Writes the marker, durably. For a backend's first set-up only: a lost marker is never made anew. */
export async function writeMarker(root: string, backendId: string): Promise<void> {
  await writeDurably(path.join(root, markerName), markerText(backendId));
}

/** Writes the marker as BlobStore.claim says. */
export async function claimMarker(root: string, backendId: string): Promise<void> {
  const marker = path.join(root, markerName);
  const temporary = temporaryOf(marker, randomUUID());
  await writeDurably(temporary, markerText(backendId));
  try {
    // A link takes no place that is taken: of two that claim, one wins.
    await link(temporary, marker).catch(async (error: unknown) => {
      const taken = hasCode(error, 'EEXIST') || (await lstat(marker).catch(nullIfMissing)) !== null;
      if (taken) requireClaimed(await readMarker(root), backendId);
      else if (hasCode(error, ...linksUnknown)) await rename(temporary, marker);
      else throw error;
    });
  } finally {
    await removeIfThere(temporary);
  }
  await syncDirectory(root);
}

/** Throws `state_conflict` when the marker that was found (null: one that can't be read) is another backend's. */
export function requireClaimed(found: string | null, backendId: string): void {
  if (found === backendId) return;
  const whose = found === null ? 'something else' : 'the marker of another backend';
  throw new AppError('state_conflict', `In this place lies ${whose}: choose another one.`);
}

/** What the marker of a backend holds. */
export function markerText(backendId: string): string {
  return `${JSON.stringify({ backend_id: backendId })}\n`;
}

/** The backend id in the text of a marker; null when there is none. */
export function backendIdIn(text: string): string | null {
  let marker: unknown;
  try {
    marker = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof marker !== 'object' || marker === null || !('backend_id' in marker)) return null;
  return typeof marker.backend_id === 'string' && isId(marker.backend_id) ? marker.backend_id : null;
}
