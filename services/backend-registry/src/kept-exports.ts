import type { ReadKeptRequest, WriteKeptRequest } from '@stowage/proto/stowage/backend_registry/v1/kept';
import type { Readable } from 'node:stream';
import { byteCount } from './append-staged.ts';
import type { OpenBackends } from './open-backend.ts';
import { requireExportKey } from './stores/keys.ts';

/** Writes a kept export, which is there whole and durably when this resolves. Errors as WriteKeptRequest says. */
export async function writeKeptExport(
  backends: Pick<OpenBackends, 'recheck' | 'confirm'>,
  { backendId, key, size, sha256 }: WriteKeptRequest,
  body: Readable,
  signal: AbortSignal,
): Promise<void> {
  requireExportKey(key);
  const store = await backends.recheck(backendId);
  await store.write(key, { size: byteCount(size), sha256 }, body, signal);
  await backends.confirm(backendId, store);
}

/** The bytes of a kept export. Errors as ReadKeptRequest says. */
export async function readKeptExport(
  backends: Pick<OpenBackends, 'use'>,
  { backendId, key, size }: ReadKeptRequest,
  signal: AbortSignal,
): Promise<Readable> {
  requireExportKey(key);
  const end = byteCount(size);
  return backends.use(backendId, (store) => store.read(key, { start: 0, end, of: end }, signal));
}

/** Removes a kept export, durably; a missing one is success. */
export async function deleteKeptExport(
  backends: Pick<OpenBackends, 'recheck'>,
  backendId: string,
  key: string,
): Promise<void> {
  requireExportKey(key);
  await (await backends.recheck(backendId)).delete(key);
}
