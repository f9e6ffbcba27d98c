import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import type { Tables } from '../tables.ts';

export type Mode = 'normal' | 'read_only';

export async function readMode(db: Kysely<Tables>): Promise<Mode> {
  const row = await query(() => db.selectFrom('identity.system_mode').select('mode').executeTakeFirstOrThrow());
  return row.mode;
}

/** Holds for every gateway from its next request on: the mode is read with each session. */
export async function setMode(db: Kysely<Tables>, mode: Mode): Promise<void> {
  await query(() => db.updateTable('identity.system_mode').set({ mode, changed_at: new Date() }).execute());
}
