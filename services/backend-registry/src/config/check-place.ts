import type { JsonObject } from '@bufbuild/protobuf';
import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { validationError } from '@stowage/common/errors';
import type { AppError, FieldError } from '@stowage/common/errors';
import type { EndpointGuard } from '../network/endpoint-guard.ts';
import type { BackendType } from '@stowage/common/backend-config';
import type { Tables } from '../tables.ts';
import { overlap, realPlace } from './local-roots.ts';
import type { LocalRoots } from './local-roots.ts';
import { remoteOverlap, remotePlace } from './remote-place.ts';

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
export async function checkPlace(needs: PlaceNeeds, placed: PlacedBackend): Promise<void> {
  const fault = await placeFault(needs, placed);
  if (fault) throw validationError([fault]);
}

/** Why a backend may not lie where it lies; null where it may. */
export async function placeFault(
  needs: Pick<PlaceNeeds, 'roots' | 'guard'>,
  { type, config }: Omit<PlacedBackend, 'id'>,
): Promise<FieldError | null> {
  if (type === 'local_directory') {
    const place = await needs.roots.place(String(config['root_path']));
    return 'fault' in place ? { pointer: '/config/root_path', detail: place.fault } : null;
  }
  const key = type === 's3' ? 'endpoint' : 'url';
  const address = config[key];
  if (typeof address !== 'string') return null;
  const denied = await needs.guard.deniesHost(new URL(address).hostname, lookupMs);
  return denied ? { pointer: `/config/${key}`, detail: 'leads to an address that STOWAGE_ENDPOINT_DENY denies' } : null;
}

/**
 * Throws `validation_failed` where a backend would lie in, or around, another one's place. Called under the lock that
 * makers of backends hold, as it looks at what the others have. False where a local one came that `realPlaces` lacks.
 */
export async function checkOverlap(
  db: Kysely<Tables>,
  placed: PlacedBackend,
  realPlaces: ReadonlyMap<string, string>,
): Promise<boolean> {
  const others = await otherConfigs(db, placed);
  const own = remotePlace(placed.type, placed.config);
  if (!own) return checkFolders(rootOf(placed.config), others.map(rootOf), realPlaces);
  const taken = others.some((config) => {
    const place = remotePlace(placed.type, config);
    return place !== null && remoteOverlap(own, place);
  });
  if (taken) throw overlaps(placed.type === 's3' ? '/config/prefix' : '/config/root_path');
  return true;
}

function checkFolders(root: string, others: readonly string[], realPlaces: ReadonlyMap<string, string>): boolean {
  const own = realPlaces.get(root);
  if (own === undefined || others.some((other) => !realPlaces.has(other))) return false;
  if (others.some((other) => overlap(own, realPlaces.get(other) ?? other))) throw overlaps('/config/root_path');
  return true;
}

function overlaps(pointer: string): AppError {
  return validationError([{ pointer, detail: 'lies in, or around, the place of another backend' }]);
}

/** Where the folders of all local backends, and of this one, really lie, by root_path; none for one over the network. */
export async function realPlaces(db: Kysely<Tables>, placed: PlacedBackend): Promise<Map<string, string>> {
  if (placed.type !== 'local_directory') return new Map();
  const roots = [placed.config, ...(await query(() => otherConfigs(db, placed)))].map(rootOf);
  const places = await Promise.all(roots.map(async (root) => ({ root, place: await realPlace(root) })));
  return new Map(places.map(({ root, place }) => [root, 'real' in place ? place.real : root]));
}

async function otherConfigs(db: Kysely<Tables>, { id, type }: PlacedBackend): Promise<JsonObject[]> {
  const rows = await db
    .selectFrom('registry.backends')
    .select('config')
    .where('type', '=', type)
    .where('id', '<>', id)
    .execute();
  return rows.map(({ config }) => config);
}

function rootOf(config: JsonObject): string {
  return String(config['root_path']);
}
