import type { JsonObject } from '@bufbuild/protobuf';
import type { BackendType } from '@stowage/common/backend-config';
import { davRootPath } from '../stores/open-store.ts';

/** Where a backend over the network lies, in one spelling for all that mean the same. */
export interface RemotePlace {
  /** What is one space of names: a bucket, or what one user sees of a WebDAV server. */
  space: string;
  /** The folders within it, from the outermost. */
  folders: readonly string[];
}

/** Null for a backend that is not over the network. */
export function remotePlace(type: BackendType, config: JsonObject): RemotePlace | null {
  switch (type) {
    case 'local_directory':
      return null;
    case 's3':
      return {
        space: `${serverOf(config['endpoint'])} ${text(config['bucket'])}`,
        folders: foldersOf(config['prefix']),
      };
    case 'webdav': {
      const url = text(config['url']);
      // Another user may see other folders at the same address.
      const space = `${serverOf(url)} ${text(config['username'])}`;
      return {
        space,
        folders: [...foldersOf(URL.parse(url)?.pathname), ...foldersOf(config['root_path'] ?? davRootPath)],
      };
    }
  }
}

/** Whether one of two places lies in the other, or both are the same. */
export function remoteOverlap(one: RemotePlace, other: RemotePlace): boolean {
  if (one.space !== other.space) return false;
  const depth = Math.min(one.folders.length, other.folders.length);
  return one.folders.slice(0, depth).every((folder, index) => folder === other.folders[index]);
}

/** Buckets of AWS are one space of names, whatever the region. */
function serverOf(address: unknown): string {
  const url = URL.parse(text(address));
  const host = url?.hostname.replace(/\.$/, '') ?? '';
  if (host === '' || host.endsWith('.amazonaws.com')) return 'aws';
  const port = url?.port || (url?.protocol === 'https:' ? '443' : '80');
  return `${host}:${port}`;
}

function foldersOf(path: unknown): string[] {
  return text(path)
    .split('/')
    .filter((folder) => folder !== '')
    .map(decoded);
}

function decoded(folder: string): string {
  try {
    return decodeURIComponent(folder);
  } catch {
    return folder;
  }
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
