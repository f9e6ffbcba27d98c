import type pg from 'pg';
import { toDatabaseError } from '@stowage/common/database/database-error';
import {
  dropStagedTables,
  isForgotten,
  letGoStaged,
  stagedNumbers,
  tryHoldStaged,
  waitForStaged,
} from './staged-tables.ts';

/**
 * Drops the staged tables of documents whose reading was cut short, by a crash for example, and of those that became no plan
 * within an hour. Safe beside other processes: what is being read is held by who reads it.
 */
export async function dropForgottenTables(bulk: pg.Pool): Promise<void> {
  await withConnection(bulk, async (client) => {
    for (const number of await stagedNumbers(client)) {
      if (await tryHoldStaged(client, number)) await dropHeld(client, number);
    }
  });
}

/**
 * Drops the tables of a document whose own connection was closed, as soon as PostgreSQL has seen that. Where it can't be
 * done now, they are dropped as forgotten ones later.
 */
export async function dropOnceLetGo(bulk: pg.Pool, number: number): Promise<void> {
  await withConnection(bulk, async (client) => {
    await waitForStaged(client, number);
    await dropHeld(client, number);
  }).catch(() => undefined);
}

async function dropHeld(client: pg.PoolClient, number: number): Promise<void> {
  if (await isForgotten(client, number)) await dropStagedTables(client, number);
  await letGoStaged(client, number);
}

/** Locks of a connection that failed go with it. */
async function withConnection(bulk: pg.Pool, work: (client: pg.PoolClient) => Promise<void>): Promise<void> {
  let client: pg.PoolClient | null = null;
  let whole = false;
  try {
    client = await bulk.connect();
    await work(client);
    whole = true;
  } catch (error) {
    throw toDatabaseError(error);
  } finally {
    client?.release(!whole);
  }
}
