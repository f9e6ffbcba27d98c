import type { JsonObject } from '@bufbuild/protobuf';
import type { BackendType } from '@stowage/common/backend-config';
import { overlap, realPlace } from './local-roots.ts';
import { remoteOverlap, remotePlace } from './remote-place.ts';
import type { RemotePlace } from './remote-place.ts';

/** Where a backend lies: a folder with its links followed, or a place over the network. */
export type FoundPlace = { type: BackendType; folder: string } | { type: BackendType; remote: RemotePlace };

/** Looks up where a backend lies; a folder that can't be looked at counts as what it is called. */
export async function findPlace(type: BackendType, config: JsonObject): Promise<FoundPlace> {
  const remote = remotePlace(type, config);
  if (remote) return { type, remote };
  const root = String(config['root_path']);
  const place = await realPlace(root);
  return { type, folder: 'real' in place ? place.real : root };
}

/** Whether one of two backends lies in the other, or both at the same place. */
export function placesOverlap(one: FoundPlace, other: FoundPlace): boolean {
  if (one.type !== other.type) return false;
  if ('folder' in one) return 'folder' in other && overlap(one.folder, other.folder);
  return 'remote' in other && remoteOverlap(one.remote, other.remote);
}
