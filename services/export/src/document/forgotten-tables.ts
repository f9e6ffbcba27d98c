import type pg from 'pg';
import { toDatabaseError } from '@stowage/common/database/database-error';
import { dropStagedTables, isForgotten, letGoStaged, stagedNumbers, tryHoldStaged } from './staged-tables.ts';

/**
 * Drops the staged tables of documents whose reading was cut short, by a crash for example, and of those that became no plan
 * within an hour. Safe beside other processes: what is being read is held by who reads it.
 */
export async function dropForgottenTables(bulk: pg.Pool): Promise<void> {
  let client: pg.PoolClient | null = null;
  let whole = false;
  try {
    client = await bulk.connect();
    for (const number of await stagedNumbers(client)) await dropForgotten(client, number);
    whole = true;
  } catch (error) {
    throw toDatabaseError(error);
  } finally {
    client?.release(!whole);
  }
}

async function dropForgotten(client: pg.PoolClient, number: number): Promise<void> {
  if (!(await tryHoldStaged(client, number))) return;
  if (await isForgotten(client, number)) await dropStagedTables(client, number);
  await letGoStaged(client, number);
}
