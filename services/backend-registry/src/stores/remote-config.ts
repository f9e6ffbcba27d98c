import type { JsonObject } from '@bufbuild/protobuf';
import { unavailable } from '@stowage/common/errors';
import type { Secrets } from '../secrets/secret-table.ts';
import type { S3Config } from './s3-config.ts';
import type { WebdavConfig } from './webdav-store.ts';

/** The path of a WebDAV backend that names none. */
export const davRootPath = '/stowage';

interface Configured {
  /** Public values, as parseConfig gives them. */
  config: JsonObject;
  secrets: Secrets;
}

/** Throws `unavailable` where something is missing that every S3 backend needs. */
export function s3Config({ config, secrets }: Configured): S3Config {
  return {
    endpoint: text(config['endpoint']),
    region: needed(config['region'], 'region'),
    bucket: needed(config['bucket'], 'bucket'),
    prefix: text(config['prefix']) ?? '',
    forcePathStyle: config['force_path_style'] === true,
    accessKeyId: needed(secrets['access_key_id'], 'access_key_id'),
    secretAccessKey: needed(secrets['secret_access_key'], 'secret_access_key'),
    sessionToken: secrets['session_token'] ?? null,
  };
}

/** Throws `unavailable` where something is missing that every WebDAV backend needs. */
export function webdavConfig({ config, secrets }: Configured): WebdavConfig {
  return {
    url: needed(config['url'], 'url'),
    rootPath: text(config['root_path']) ?? davRootPath,
    username: needed(config['username'], 'username'),
    password: needed(secrets['password'], 'password'),
  };
}

function text(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}

function needed(value: unknown, field: string): string {
  const given = text(value);
  if (given === null) throw unavailable(`The configuration of this backend has no ${field}.`);
  return given;
}
