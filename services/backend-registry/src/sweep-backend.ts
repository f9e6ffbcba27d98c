import type { Kysely } from 'kysely';
import { sql } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import type { Logger } from '@stowage/common/runtime/logger';
import type { OpenBackends } from './open-backend.ts';
import type { AppendableStore } from './stores/blob-store.ts';
import { isAppendable } from './stores/open-store.ts';
import type { Tables } from './tables.ts';

/** Longer than any write pauses, and than clocks are apart. */
const leftoverAgeMs = 24 * 3_600_000;

const pageSize = 500;

interface Needs {
  db: Kysely<Tables>;
  backends: OpenBackends;
  logger: Logger;
}

/** What was swept, in pieces. */
export interface Swept {
  /** What writes left half-done. */
  temporaries: number;
  /** Staged content of uploads that nobody knows. */
  staged: number;
}

/**
 * Removes from a backend what was left there a day ago or more: by writes that were cut off, and of uploads that are unknown, as
 * after a restore of the database. May be repeated. Throws `not_found` for an unknown backend, `unavailable`.
 */
export async function sweepBackend(
  { db, backends, logger }: Needs,
  backendId: string,
  now: Date = new Date(),
): Promise<Swept> {
  const before = new Date(now.getTime() - leftoverAgeMs);
  const store = await backends.recheck(backendId);
  const temporaries = await store.sweep(before);
  const staged = isAppendable(store) ? await sweepStaged(db, store, before) : 0;
  if (temporaries + staged > 0) logger.info({ backend_id: backendId, temporaries, staged }, 'Leftovers were swept.');
  return { temporaries, staged };
}

async function sweepStaged(db: Kysely<Tables>, store: AppendableStore, before: Date): Promise<number> {
  let swept = 0;
  let cursor: string | null = null;
  do {
    const page = await store.listStaged(cursor, pageSize);
    const old = page.staged.filter(({ modifiedAt }) => modifiedAt < before).map(({ id }) => id);
    for (const id of await unknownAmong(db, old)) {
      await store.discard(id);
      swept += 1;
    }
    cursor = page.next;
  } while (cursor !== null);
  return swept;
}

/** Those that are the id of no upload. None where no upload is known at all: then it is the database that may be wrong. */
async function unknownAmong(db: Kysely<Tables>, ids: readonly string[]): Promise<string[]> {
  if (ids.length === 0) return [];
  const { rows } = await query(() =>
    sql<{ id: string }>`
      select s.id from unnest(${ids}::uuid[]) as s (id)
      where not exists (select from upload.known_uploads u where u.id = s.id)
        and exists (select from upload.known_uploads)`.execute(db),
  );
  return rows.map(({ id }) => id);
}
