import type { JsonObject } from '@bufbuild/protobuf';
import { AppError, unavailable } from '@stowage/common/errors';
import type { LocalRoots } from '../config/local-roots.ts';
import { EndpointDenied } from '../network/endpoint-guard.ts';
import type { Agents } from '../network/endpoint-guard.ts';
import type { Secrets } from '../secrets/secret-table.ts';
import type { BackendType } from '@stowage/common/backend-config';
import type { AppendableStore, BlobStore } from './blob-store.ts';
import { LocalDirectory } from './local-directory.ts';
import { guarded, hasCode, makeDirectory } from './local-files.ts';
import type { S3Config } from './s3-config.ts';
import { S3Store } from './s3-store.ts';
import { isRefusal, refusal } from './store-refusal.ts';
import { WebdavStore } from './webdav-store.ts';
import type { WebdavConfig } from './webdav-store.ts';
import { guardAppendableStore, guardStore } from './wrappers/guard-store.ts';
import { measure } from './wrappers/measure.ts';
import type { CallRecorder } from './wrappers/measure.ts';
import { WrappedAppendableStore } from './wrappers/wrapped-appendable-store.ts';

/** Which store to open. */
export interface StorePlace {
  /** Of the backend. */
  id: string;
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
  /** Hears of each call of a store. */
  record: CallRecorder;
}

/** The path of a WebDAV backend that names none. */
export const davRootPath = '/stowage';

/** A fault that one look at the store is enough to be sure of: its place or its marker is not there, or not ours. */
export class MarkerFault extends AppError {
  constructor(detail: string, cause?: unknown) {
    super('unavailable', detail, { members: { retry_after: 2 }, cause });
  }
}

/** Opens the store of a backend; its identity is the caller's to check. Throws `unavailable`. */
export async function openStore(place: StorePlace, needs: StoreNeeds): Promise<BlobStore> {
  const measured = measure(place.id, needs.record);
  switch (place.type) {
    case 'local_directory':
      return new WrappedAppendableStore(await openLocal(place, needs.roots), [measured]);
    case 's3':
      return guardAppendableStore(await S3Store.open(s3Config(place), needs.agents), measured);
    case 'webdav':
      return guardStore(await WebdavStore.open(webdavConfig(place), needs.agents), measured);
  }
}

function s3Config({ config, secrets }: StorePlace): S3Config {
  const endpoint = typeof config['endpoint'] === 'string' ? config['endpoint'] : null;
  return {
    endpoint,
    region: stringIn(config, 'region'),
    bucket: stringIn(config, 'bucket'),
    prefix: typeof config['prefix'] === 'string' ? config['prefix'] : '',
    // What is not AWS seldom has a host for each bucket.
    forcePathStyle: typeof config['force_path_style'] === 'boolean' ? config['force_path_style'] : endpoint !== null,
    accessKeyId: stringIn(secrets, 'access_key_id'),
    secretAccessKey: stringIn(secrets, 'secret_access_key'),
    sessionToken: secrets['session_token'] ?? null,
  };
}

function webdavConfig({ config, secrets }: StorePlace): WebdavConfig {
  return {
    url: stringIn(config, 'url'),
    rootPath: typeof config['root_path'] === 'string' ? config['root_path'] : davRootPath,
    username: stringIn(config, 'username'),
    password: stringIn(secrets, 'password'),
  };
}

async function openLocal({ config, isDefault, marked }: StorePlace, roots: LocalRoots): Promise<AppendableStore> {
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

/** Whether one look is enough: a marker that is not ours, credentials that are refused, an address that is denied. */
export function isCertain(error: AppError): boolean {
  return error instanceof MarkerFault || error instanceof EndpointDenied || isRefusal(error);
}

function stringIn(values: JsonObject | Secrets, key: string): string {
  const value = values[key];
  if (typeof value === 'string') return value;
  throw refusal(`This backend has no ${key}: set it first.`, `no ${key}`);
}
