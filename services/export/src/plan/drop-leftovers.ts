import type pg from 'pg';
import { dropStagedTables } from '../document/staged-tables.ts';
import { inBulkTransaction } from './bulk-transaction.ts';
import { dropSurplusPlans } from './plans.ts';

/** No document takes as long to arrive. */
const longestStaging = '1 day';

/** Drops plans that have expired, and documents that a crash left behind. Safe beside others, and beside imports. */
export async function dropLeftovers(bulk: pg.Pool): Promise<void> {
  await inBulkTransaction(bulk, dropSurplusPlans);
  await inBulkTransaction(bulk, async (client) => {
    const { rows } = await client.query<{ number: string }>(
      `select number from export.stagings s
       where begun_at < now() - $1::interval
         and not exists (select from export.plans p where p.staged_number = s.number)
       for update skip locked`,
      [longestStaging],
    );
    for (const { number } of rows) await dropStagedTables(client, Number(number));
  });
}
