import { createHash } from 'node:crypto';
import type { JsonObject } from '@bufbuild/protobuf';
import { AppError } from '@stowage/common/errors';
import { LocalRoots } from './config/local-roots.ts';
import { parseConfig, parseType } from './config/parse-config.ts';
import { EndpointGuard } from './network/endpoint-guard.ts';
import { registrySettings } from './settings.ts';
import type { RegistrySettings } from './settings.ts';
import type { BlobStore, ListedBlob } from './stores/blob-store.ts';
import { parseBlobKey } from './stores/keys.ts';
import { openStore } from './stores/open-store.ts';

/** The settings of listContent. */
export const listSettings = { endpointDeny: registrySettings.endpointDeny };

const pageSize = 1_000;
const readsAtOnce = 8;

/** A backend as a client describes a new one, its secrets among the rest of its configuration. */
export interface Place {
  type: string;
  config: JsonObject;
}

/** One blob, as its backend tells of it without any metadata. */
export interface FoundBlob {
  id: string;
  key: string;
  /** In bytes. */
  size: number;
  /** Of what was read, lower-case hexadecimal; null where it can't be read. */
  sha256: string | null;
}

/** All content at a place. */
export interface Content {
  /** The id of the backend whose marker lies there; null where there is none. */
  backendId: string | null;
  /** In the order of their keys; each is read from end to end. A listing that breaks off throws `unavailable`. */
  blobs: AsyncIterable<FoundBlob>;
  close(): void;
}

/**
 * Tells what lies at a backend's place with neither database nor export, and changes nothing there. Throws
 * `validation_failed` for a description that is none, `unavailable` where the place can't be asked.
 */
export async function openContent(
  { type: given, config: values }: Place,
  settings: Pick<RegistrySettings, keyof typeof listSettings>,
): Promise<Content> {
  const type = parseType(given);
  const { config, secrets } = parseConfig(type, values, null);
  const agents = new EndpointGuard(settings.endpointDeny).agents();
  // Whoever can run this may read any folder: the roots are not theirs to pass.
  const place = { id: 'unknown', type, config, secrets, isDefault: true, marked: true };
  const store = await openStore(place, { roots: new LocalRoots([]), agents, record: () => undefined });
  return {
    backendId: await store.identity(),
    blobs: blobsOf(store),
    close: () => {
      agents.http.destroy();
      agents.https.destroy();
    },
  };
}

async function* blobsOf(store: BlobStore): AsyncGenerator<FoundBlob> {
  for (let cursor: string | null = null; ;) {
    const page = await store.list(cursor, pageSize);
    for (let at = 0; at < page.blobs.length; at += readsAtOnce) {
      yield* await Promise.all(page.blobs.slice(at, at + readsAtOnce).map((blob) => look(store, blob)));
    }
    if (page.next === null) return;
    cursor = page.next;
  }
}

async function look(store: BlobStore, { key, size }: ListedBlob): Promise<FoundBlob> {
  const { blobId: id } = parseBlobKey(key);
  try {
    const hash = createHash('sha256');
    const range = { start: 0, end: size, of: size };
    for await (const piece of await store.read(key, range, new AbortController().signal)) hash.update(piece);
    return { id, key, size, sha256: hash.digest('hex') };
  } catch (error) {
    // Whoever saves what can be saved wants the others all the more.
    if (error instanceof AppError) return { id, key, size, sha256: null };
    throw error;
  }
}
