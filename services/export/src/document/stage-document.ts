import type { Readable } from 'node:stream';
import type pg from 'pg';
import { toDatabaseError } from '@stowage/common/database/database-error';
import { unavailable } from '@stowage/common/errors';
import { cancelOnAbort } from './cancel-on-abort.ts';
import type { Expanding } from './expanded.ts';
import { dropOnceLetGo } from './forgotten-tables.ts';
import { KeptLines } from './kept-lines.ts';
import { readDocument } from './read-document.ts';
import type { ReadDocument } from './read-document.ts';
import { sectionNames } from './records.ts';
import { checkStaged } from './staged-checks.ts';
import { StagedRows } from './staged-rows.ts';
import {
  createStagedTables,
  dropStagedTables,
  holdStaged,
  indexStaged,
  letGoStaged,
  markWhole,
} from './staged-tables.ts';
import { inTurn } from './turns.ts';
import type { Finding } from './unreadable.ts';

export interface Staging extends Expanding {
  /** Whether the staged tables of a valid document stay. */
  keep: boolean;
}

/** What is known of a document that was read to its end. */
export interface StagedDocument {
  /** Of its staged tables; null where nothing is left behind. */
  number: number | null;
  valid: boolean;
  /** At most 1,000 each. */
  errors: Finding[];
  warnings: Finding[];
  counts: { section: string; count: bigint }[];
  /** Empty where it could not be read to its end. */
  sha256: string;
  instanceId: string | null;
  exportedAt: Date | null;
}

/**
 * Reads a document, checks it and stages its records in tables of their own. Nothing is left behind where it is not valid, was
 * not to be kept, or reading failed; what is kept is to be named in a plan within an hour. Throws AppError `validation_failed`
 * where it is not JSON, `payload_too_large`, `unavailable`.
 */
export async function stageDocument(bulk: pg.Pool, body: Readable, staging: Staging): Promise<StagedDocument> {
  return inTurn(bulk, () => stage(bulk, body, staging));
}

async function stage(bulk: pg.Pool, body: Readable, staging: Staging): Promise<StagedDocument> {
  const client = await bulk.connect().catch((error: unknown) => {
    throw toDatabaseError(error);
  });
  let held: number | null = null;
  let kept: number | null = null;
  const stopCancelling = cancelOnAbort(client, staging.signal);
  try {
    const number = (held = await holdStaged(client));
    await createStagedTables(client, number);
    const document = await fill(client, number, body, staging);
    if (staging.keep && document.findings.errorCount === 0) {
      await indexStaged(client, number);
      await markWhole(client, number);
      kept = number;
    }
    return answer(document, kept);
  } catch (error) {
    throw staging.signal.aborted ? unavailable('The document was not sent to its end.', error) : toDatabaseError(error);
  } finally {
    await stopCancelling();
    await giveBack(bulk, client, held, kept);
  }
}

async function fill(
  client: pg.PoolClient,
  number: number,
  body: Readable,
  expanding: Expanding,
): Promise<ReadDocument> {
  const lines = new KeptLines(async () => client);
  const rows = new StagedRows(client, number);
  const document = await readDocument(body, expanding, lines, rows);
  await rows.end();
  // What records say of each other makes no sense where some are missing.
  if (document.allRight) await checkStaged(client, number, document, expanding.signal);
  return document;
}

function answer({ findings, counts, ...read }: ReadDocument, number: number | null): StagedDocument {
  return {
    number,
    valid: findings.errorCount === 0,
    errors: findings.errors,
    warnings: findings.warnings,
    counts: sectionNames.map((section) => ({ section, count: BigInt(counts[section]) })),
    sha256: read.sha256,
    instanceId: read.instanceId,
    exportedAt: read.exportedAt === null ? null : new Date(read.exportedAt),
  };
}

/** A connection that can't drop its tables any more is closed, which lets go of them: another one drops them then. */
async function giveBack(bulk: pg.Pool, client: pg.PoolClient, held: number | null, kept: number | null): Promise<void> {
  try {
    if (held !== null) {
      if (kept === null) await dropStagedTables(client, held);
      await letGoStaged(client, held);
    }
    await client.query('discard temporary');
    client.release();
  } catch {
    client.release(true);
    if (held !== null && kept === null) await dropOnceLetGo(bulk, held);
  }
}
