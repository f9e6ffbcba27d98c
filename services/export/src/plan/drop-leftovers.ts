import type pg from 'pg';
import { dropForgottenTables } from '../document/forgotten-tables.ts';
import { inBulkTransaction } from './bulk-transaction.ts';
import { dropSurplusPlans } from './plans.ts';

/** Drops plans that have expired, and documents that a crash left behind. Safe beside others, and beside imports. */
export async function dropLeftovers(bulk: pg.Pool): Promise<void> {
  await inBulkTransaction(bulk, dropSurplusPlans);
  await dropForgottenTables(bulk);
}
