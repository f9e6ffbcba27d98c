import { toDatabaseError } from '@stowage/common/database/database-error';
import { newId } from '@stowage/common/ids';
import type pg from 'pg';
import { exportDocument } from '../snapshot/export-document.ts';
import type { DocumentFacts } from '../snapshot/export-document.ts';
import { compressed } from './compress.ts';
import { writePieces } from './pieces.ts';

/** How many of the states before an import are kept. */
const keptBeforeImport = 3;
/** No import takes as long: what was begun before that was cut off. */
const leftoverAge = '6 hours';

/** A document that is whole, but not yet kept. */
export interface BeforeImport extends DocumentFacts {
  exportId: string;
}

/**
 * Writes the metadata as they are now into the database, outside of any transaction of the import. The import calls
 * `markKept` in its own transaction, so that there is one export for each import and none for those that failed.
 */
export async function keepBeforeImport(bulk: pg.Pool, signal: AbortSignal): Promise<BeforeImport> {
  await forgetBeforeImport(bulk);
  const exportId = newId();
  await bulk.query(`insert into export.exports (id, reason) values ($1, 'before_import')`, [exportId]);
  let facts: DocumentFacts | null = null;
  const document = compressed(exportDocument(bulk, (told) => (facts = told)));
  const stop = (): void => void document.destroy(new Error('The import was given up.'));
  signal.addEventListener('abort', stop, { once: true });
  try {
    signal.throwIfAborted();
    const bytes = await writePieces(bulk, exportId, document);
    return { exportId, ...(await noteFacts(bulk, exportId, facts, bytes)) };
  } catch (error) {
    await dropBeforeImport(bulk, exportId).catch(() => undefined);
    throw toDatabaseError(error);
  } finally {
    signal.removeEventListener('abort', stop);
    document.destroy();
  }
}

async function noteFacts(
  bulk: pg.Pool,
  exportId: string,
  facts: DocumentFacts | null,
  bytes: number,
): Promise<DocumentFacts> {
  if (facts === null) throw new Error('A document ended without its facts.');
  await bulk.query(
    `update export.exports set bytes = $2, document_sha256 = decode($3, 'hex'), counts = $4, created_at = $5 where id = $1`,
    [exportId, bytes, facts.sha256, JSON.stringify(facts.counts), facts.exportedAt],
  );
  return facts;
}

/** Keeps it once the caller's transaction commits. Throws where it is gone. */
export async function markKept(client: pg.ClientBase, exportId: string): Promise<void> {
  const { rowCount } = await client.query(
    `update export.exports set state = 'kept' where id = $1 and state = 'writing'`,
    [exportId],
  );
  if (rowCount !== 1) throw new Error('The export of the state before is gone.');
}

/** Forgets one whose import failed; one that was kept after all stays. Safe to repeat. */
export async function dropBeforeImport(db: Pick<pg.Pool, 'query'>, exportId: string): Promise<void> {
  await db.query(`delete from export.exports where id = $1 and reason = 'before_import' and state = 'writing'`, [
    exportId,
  ]);
}

/** Forgets all but the newest, and what imports left that were cut off; safe at any time. */
export async function forgetBeforeImport(db: Pick<pg.Pool, 'query'>): Promise<void> {
  await db.query(
    `delete from export.exports where reason = 'before_import' and case state
      when 'writing' then created_at < now() - $1::interval
      else id not in (
        select id from export.exports where reason = 'before_import' and state = 'kept' order by id desc limit $2)
    end`,
    [leftoverAge, keptBeforeImport],
  );
}
