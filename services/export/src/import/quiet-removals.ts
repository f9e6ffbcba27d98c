import type { ClientBase } from 'pg';
import { setTimeout as sleep } from 'node:timers/promises';
import { unavailable } from '@stowage/common/errors';
import { holdRemovals } from '@stowage/common/jobs/removal-hold';
import { overClient } from './over-client.ts';

/** For how long nothing is removed while an import is on its way, which sets a longer hold when it commits. */
const holdMs = 15 * 60_000;
/** Longer than a removal of bytes may take from its claim on. */
const removalMs = 120_000;
const pollMs = 250;
const retryAfterSeconds = 10;

/** Lets no more removals begin, and waits for those under way: none may end in what an import brings. Run it before. */
export async function quietRemovals(client: ClientBase, signal: AbortSignal): Promise<void> {
  await holdRemovals(overClient(client), holdMs);
  const until = performance.now() + removalMs;
  while ((await removalUnderWay(client)) && performance.now() < until) {
    signal.throwIfAborted();
    await sleep(pollMs);
  }
}

/** Throws `unavailable` where a removal that was claimed lately may still be under way. Run it under the locks: none begins then. */
export async function requireNoRemovals(client: ClientBase): Promise<void> {
  if (!(await removalUnderWay(client))) return;
  throw unavailable('Content is being removed just now: try again.', undefined, retryAfterSeconds);
}

async function removalUnderWay(client: ClientBase): Promise<boolean> {
  const { rowCount } = await client.query(
    `select from catalog.replicas where state = 'removing' and removing_since > clock_timestamp() - $1 * interval '1 ms'
     limit 1`,
    [removalMs],
  );
  return rowCount === 1;
}
