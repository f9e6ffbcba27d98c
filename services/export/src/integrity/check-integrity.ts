import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { toDatabaseError } from '@stowage/common/database/database-error';
import type { CheckIntegrityResponseSchema } from '@stowage/proto/stowage/export/v1/export';
import type pg from 'pg';
import { cancelOnAbort } from '../document/cancel-on-abort.ts';
import { sectionNames } from '../document/records.ts';
import { checkStatement, foundMax } from './check.ts';
import type { FoundRow } from './check.ts';
import { contentChecks } from './content-checks.ts';
import { findCycles } from './cycles.ts';
import { nodeChecks } from './node-checks.ts';
import { fairShare } from './share.ts';
import { upkeepChecks } from './upkeep-checks.ts';

/**
 * Looks at all of the live metadata, as they were at one moment, for what should not be; changes nothing. Of many problems it
 * gives 1,000, some of each kind. Ends early when `signal` is aborted. Throws `unavailable`.
 */
export async function checkIntegrity(
  pool: pg.Pool,
  signal: AbortSignal,
): Promise<MessageInitShape<typeof CheckIntegrityResponseSchema>> {
  const client = await pool.connect().catch(rethrow);
  let broken = true;
  const stopClosing = cancelOnAbort(client, signal);
  try {
    signal.throwIfAborted();
    const answer = await readAll(client);
    broken = false;
    return answer;
  } catch (error) {
    signal.throwIfAborted();
    return rethrow(error);
  } finally {
    await stopClosing();
    client.release(broken);
  }
}

async function readAll(client: pg.PoolClient): Promise<MessageInitShape<typeof CheckIntegrityResponseSchema>> {
  await client.query('begin isolation level repeatable read read only');
  const { rows: counts } = await client.query<Record<string, string> & { now: Date }>(countsQuery);
  const found: FoundRow[] = await findCycles(client);
  for (const check of [...nodeChecks, ...contentChecks, ...upkeepChecks]) {
    found.push(...(await client.query<FoundRow>(checkStatement(check))).rows);
  }
  await client.query('commit');
  const [row] = counts;
  if (!row) throw new Error('a statement without from gave no row');
  const { problems, count } = fairShare(found, foundMax);
  return {
    ok: count === 0,
    checkedAt: timestampFromDate(row.now),
    counts: sectionNames.map((section) => ({ section, count: BigInt(row[section] ?? 0) })),
    problems: problems.map(({ kind, id, detail }) => ({ kind, id: id ?? '', detail })),
    problemCount: BigInt(count),
  };
}

const countsQuery = `
  select now(), directories, files, blobs, replicas, backends, policies
  from (
      select count(*) filter (where kind = 'directory') as directories, count(*) filter (where kind = 'file') as files
      from catalog.nodes) n,
    (select count(*) as blobs from catalog.blobs) b,
    (select count(*) as replicas from catalog.replicas) r,
    (select count(*) as backends from registry.backends) k,
    (select count(*) as policies from placement.policies) p`;

function rethrow(error: unknown): never {
  throw toDatabaseError(error);
}
