import { constants } from 'node:fs';
import path from 'node:path';
import { isId } from '@stowage/common/ids';
import { openRegular, writeDurably } from './local-files.ts';

/** The file in the root of a backend that says which backend it is. */
export const markerName = '.stowage-backend.json';

const maxMarkerBytes = 4_096;

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

/** Writes the marker, durably. For a backend's first set-up only: a lost marker is never made anew. */
export async function writeMarker(root: string, backendId: string): Promise<void> {
  await writeDurably(path.join(root, markerName), `${JSON.stringify({ backend_id: backendId })}\n`);
}

function backendIdIn(text: string): string | null {
  let marker: unknown;
  try {
    marker = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof marker !== 'object' || marker === null || !('backend_id' in marker)) return null;
  return typeof marker.backend_id === 'string' && isId(marker.backend_id) ? marker.backend_id : null;
}
