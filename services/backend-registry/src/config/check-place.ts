import type { JsonObject } from '@bufbuild/protobuf';
import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { validationError } from '@stowage/common/errors';
import type { EndpointGuard } from '../network/endpoint-guard.ts';
import type { BackendType, Tables } from '../tables.ts';
import { overlap, realPlace } from './local-roots.ts';
import type { LocalRoots } from './local-roots.ts';

/** A name that is not resolved by then is left to the check. */
const lookupMs = 3_000;

export interface PlaceNeeds {
  db: Kysely<Tables>;
  roots: LocalRoots;
  guard: EndpointGuard;
}

/** The backend whose place is looked at. */
export interface PlacedBackend {
  id: string;
  type: BackendType;
  config: JsonObject;
}

/** Throws `validation_failed` where a backend may not lie: outside the allowed roots, or at a denied address. */
export async function checkPlace(needs: PlaceNeeds, { type, config }: PlacedBackend): Promise<void> {
  if (type === 'local_directory') {
    const place = await needs.roots.place(String(config['root_path']));
    if ('fault' in place) throw validationError([{ pointer: '/config/root_path', detail: place.fault }]);
    return;
  }
  const key = type === 's3' ? 'endpoint' : 'url';
  const address = config[key];
  if (typeof address !== 'string') return;
  if (await needs.guard.deniesHost(new URL(address).hostname, lookupMs)) {
    throw validationError([
      { pointer: `/config/${key}`, detail: 'leads to an address that STOWAGE_ENDPOINT_DENY denies' },
    ]);
  }
}

/**
 * Throws `validation_failed` where a local backend would lie in, or around, another one's folder. Called under the lock
 * that makers of local backends hold, as it looks at what the others have.
 */
export async function checkOverlap(
  db: Kysely<Tables>,
  { id, config }: PlacedBackend,
  realPlaces: ReadonlyMap<string, string>,
): Promise<boolean> {
  const others = await otherRoots(db, id);
  const own = realPlaces.get(String(config['root_path']));
  if (own === undefined || others.some((root) => !realPlaces.has(root))) return false;
  if (others.some((root) => overlap(own, realPlaces.get(root) ?? root))) {
    throw validationError([
      { pointer: '/config/root_path', detail: 'lies in, or around, the folder of another backend' },
    ]);
  }
  return true;
}

/** Where the folders of all local backends, and of this one, really lie: by root_path. */
export async function realPlaces(db: Kysely<Tables>, { id, config }: PlacedBackend): Promise<Map<string, string>> {
  const roots = [String(config['root_path']), ...(await query(() => otherRoots(db, id)))];
  const places = await Promise.all(roots.map(async (root) => ({ root, place: await realPlace(root) })));
  return new Map(places.map(({ root, place }) => [root, 'real' in place ? place.real : root]));
}

async function otherRoots(db: Kysely<Tables>, id: string): Promise<string[]> {
  const rows = await db
    .selectFrom('registry.backends')
    .select('config')
    .where('type', '=', 'local_directory')
    .where('id', '<>', id)
    .execute();
  return rows.map(({ config }) => String(config['root_path']));
}
