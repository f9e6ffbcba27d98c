import type { JsonObject } from '@bufbuild/protobuf';
import { AppError, unavailable } from '@stowage/common/errors';
import type { LocalRoots } from '../config/local-roots.ts';
import { EndpointDenied } from '../network/endpoint-guard.ts';
import type { Agents } from '../network/endpoint-guard.ts';
import type { Secrets } from '../secrets/secret-table.ts';
import type { BackendType } from '../tables.ts';
import type { AppendableStore, BlobStore } from './blob-store.ts';
import { LocalDirectory } from './local-directory.ts';
import { guarded, hasCode, makeDirectory } from './local-files.ts';
import { s3Config, webdavConfig } from './remote-config.ts';
import { S3Store } from './s3-store.ts';
import { WebdavStore } from './webdav-store.ts';
import { guardStore } from './wrappers/guard-store.ts';
import type { CallRecorder } from './wrappers/measure.ts';

/** Which store to open. */
export interface StorePlace {
  type: BackendType;
  /** Public values, as parseConfig gives them. */
  config: JsonObject;
  secrets: Secrets;
  /** Its folder may lie outside the allowed roots: only the data folder decides where the default backend's is. */
  isDefault: boolean;
  /** It was set up before: a place that is missing is a fault, not one to be made. */
  marked: boolean;
}

export interface StoreNeeds {
  roots: LocalRoots;
  agents: Agents;
  /** Where the calls of a store over the network are counted. */
  record: (type: BackendType) => CallRecorder;
}

/** A fault that one look at the store is enough to be sure of: its place or its marker is not there, or not ours. */
export class MarkerFault extends AppError {
  constructor(detail: string, cause?: unknown) {
    super('unavailable', detail, { members: { retry_after: 2 }, cause });
  }
}

/** Opens the store of a backend; its identity is the caller's to check. Throws `unavailable`. */
export async function openStore(place: StorePlace, needs: StoreNeeds): Promise<BlobStore> {
  switch (place.type) {
    case 'local_directory':
      return openLocal(place, needs.roots);
    case 's3':
      return guardStore(await S3Store.open(s3Config(place), needs.agents), needs.record(place.type));
    case 'webdav':
      return guardStore(await WebdavStore.open(webdavConfig(place), needs.agents), needs.record(place.type));
  }
}

async function openLocal({ config, isDefault, marked }: StorePlace, roots: LocalRoots): Promise<BlobStore> {
  const rootPath = config['root_path'];
  if (typeof rootPath !== 'string') throw unavailable('The configuration of this backend names no root_path.');
  // Links may lead elsewhere by now than when the configuration was taken.
  const found = isDefault ? null : await guarded(() => roots.place(rootPath));
  if (found && 'fault' in found) throw new MarkerFault(`The folder of this backend ${found.fault}.`);
  const root = found?.real ?? rootPath;
  if (!marked) await guarded(() => makeDirectory(root));
  return LocalDirectory.open(root).catch((error: unknown) => {
    if (!(error instanceof AppError) || !hasCode(error.cause, 'ENOENT', 'ENOTDIR')) throw error;
    throw new MarkerFault(
      'The folder of this backend has no identity marker: it is not there. Is its disk mounted?',
      error,
    );
  });
}

/** Whether uploads can grow in it. */
export function isAppendable(store: BlobStore): store is AppendableStore {
  return 'append' in store;
}

/** Whether one look is enough: a marker that is not ours, or a server that refuses our credentials. */
export function isCertain(error: unknown): boolean {
  return causesOf(error).some((cause) => cause instanceof MarkerFault || [401, 403].includes(statusOf(cause)));
}

/** Whether the guard of endpoints refused to connect. */
export function isDenied(error: unknown): boolean {
  return causesOf(error).some((cause) => cause instanceof EndpointDenied);
}

function causesOf(error: unknown): object[] {
  const causes: object[] = [];
  for (let cause = error; typeof cause === 'object' && cause !== null && causes.length < 8;) {
    causes.push(cause);
    cause = 'cause' in cause ? cause.cause : null;
  }
  return causes;
}

/** The HTTP status in an error of the libraries that the stores use, or 0. */
function statusOf(error: object): number {
  if ('$metadata' in error && typeof error.$metadata === 'object' && error.$metadata !== null) {
    return 'httpStatusCode' in error.$metadata ? Number(error.$metadata.httpStatusCode) : 0;
  }
  return 'status' in error ? Number(error.status) : 'statusCode' in error ? Number(error.statusCode) : 0;
}
