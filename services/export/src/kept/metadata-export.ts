import { AppError } from '@stowage/common/errors';
import { exportKey } from '@stowage/common/export-key';
import { newId } from '@stowage/common/ids';
import { PermanentJobError } from '@stowage/common/jobs/job';
import type { JobHandler, JsonObject } from '@stowage/common/jobs/job';
import { backgroundContext } from '@stowage/common/rpc/context';
import type { CallContext } from '@stowage/common/rpc/context';
import type { Logger } from '@stowage/common/runtime/logger';
import { createHash } from 'node:crypto';
import type pg from 'pg';
import { exportDocument } from '../snapshot/export-document.ts';
import type { DocumentFacts } from '../snapshot/export-document.ts';
import { compressed } from './compress.ts';
import { findLeftovers, findSurplus, forgetKept, noteKept, noteWriting } from './kept-rows.ts';
import type { KeptPlace } from './kept-rows.ts';
import type { KeptStorage } from './kept-storage.ts';
import { spool } from './spool.ts';
import type { Spool } from './spool.ts';

interface Needs {
  bulk: pg.Pool;
  storage: KeptStorage;
  /** Its id or name; the default one where it is empty. */
  backend: string;
  /** How many are kept. */
  keep: number;
  logger: Logger;
}

/**
 * The job metadata_export: writes all metadata to a backend, reads them back, and removes the oldest exports beyond those that are
 * kept. What is written is noted before, so that a try that was cut off at any moment is cleaned up by the next.
 */
export function metadataExport(needs: Needs): JobHandler {
  return async (job, { signal, progress }) => {
    const { bulk } = needs;
    const context = backgroundContext(signal, job.id);
    const target = await findTarget(bulk, needs.backend);
    await removeAll(needs, await findLeftovers(bulk, job.id), context);
    let facts: DocumentFacts | null = null;
    const document = await spool(compressed(exportDocument(bulk, (told) => (facts = told))), signal);
    try {
      progress({ bytes: document.size });
      const written = wholeFacts(facts);
      const place = placeOf(target, written.exportedAt);
      await noteWriting(bulk, place, job.id);
      await write(needs.storage, place, document, context);
      await requireReadable(needs.storage, place, document, context);
      if (!(await noteKept(bulk, place.id, written, document.size))) {
        await needs.storage.kept.deleteKept(place, context);
        throw new AppError('state_conflict', 'This export was taken for a leftover meanwhile.');
      }
      const removed = await removeAll(needs, await findSurplus(bulk, needs.keep), context);
      return resultOf(place, target, written, document.size, removed);
    } finally {
      await document.close();
    }
  };
}

interface Target {
  id: string;
  name: string;
}

async function findTarget(bulk: pg.Pool, wanted: string): Promise<Target> {
  const { rows } = await bulk.query<Target & { enabled: boolean }>(
    `select id, name, enabled from registry.backends
    where case when $1 = '' then is_default else id::text = $1 or name = $1 end
    order by id::text = $1 desc limit 1`,
    [wanted],
  );
  const [found] = rows;
  if (!found) {
    const which = wanted === '' ? 'There is no default backend' : `There is no backend "${wanted}"`;
    throw new PermanentJobError(`${which} to keep exports on: see STOWAGE_EXPORT_BACKEND.`);
  }
  if (!found.enabled) throw new PermanentJobError(`The backend "${found.name}" that exports are kept on is disabled.`);
  return found;
}

function wholeFacts(facts: DocumentFacts | null): DocumentFacts {
  if (facts === null) throw new Error('A document ended without its facts.');
  return facts;
}

function placeOf({ id: backendId }: Target, exportedAt: Date): KeptPlace {
  const id = newId();
  return { id, backendId, key: exportKey(id, exportedAt) };
}

async function write(
  storage: KeptStorage,
  { backendId, key }: KeptPlace,
  { size, sha256, read }: Spool,
  context: CallContext,
): Promise<void> {
  const body = read();
  try {
    await storage.write({ backendId, key, size: BigInt(size), sha256 }, body, context);
  } finally {
    body.destroy();
  }
}

/** What can't be read back is no export. Throws `checksum_mismatch` for other bytes. */
async function requireReadable(
  storage: KeptStorage,
  { backendId, key }: KeptPlace,
  { size, sha256 }: Spool,
  context: CallContext,
): Promise<void> {
  const hash = createHash('sha256');
  for await (const piece of await storage.read({ backendId, key, size: BigInt(size) }, context)) hash.update(piece);
  if (hash.digest().equals(sha256)) return;
  throw new AppError('checksum_mismatch', 'The export that was just written is another one when it is read back.');
}

/** Gives how many went; what a backend does not let go now is tried again by the next job. */
async function removeAll(
  { bulk, storage, logger }: Needs,
  places: readonly KeptPlace[],
  context: CallContext,
): Promise<number> {
  let removed = 0;
  for (const { id, backendId, key } of places) {
    try {
      await storage.kept.deleteKept({ backendId, key }, context);
      await forgetKept(bulk, id);
      removed += 1;
    } catch (error) {
      context.signal.throwIfAborted();
      logger.warn({ err: error, backend_id: backendId, export_id: id }, 'An export could not be removed.');
    }
  }
  return removed;
}

function resultOf(
  { id, key }: KeptPlace,
  target: Target,
  { sha256, counts }: DocumentFacts,
  bytes: number,
  removed: number,
): JsonObject {
  return {
    export_id: id,
    key,
    backend_id: target.id,
    backend_name: target.name,
    bytes,
    document_sha256: sha256,
    counts: { ...counts },
    removed,
  };
}
