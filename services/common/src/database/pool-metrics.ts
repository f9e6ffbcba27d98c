import type pg from 'pg';
import { gauge, observeAll } from '../runtime/metrics.ts';

/** Tells of each pool of a service how many connections are in use and idle, and how many callers wait for one. Gives what ends that. */
export function observePools(component: string, pools: Readonly<Record<string, pg.Pool>>): () => void {
  const connections = gauge('stowage_db_pool_connections', 'Database connections, in use or idle.');
  const waiting = gauge('stowage_db_pool_waiting', 'Callers that wait for a database connection.');
  return observeAll([connections, waiting], (result) => {
    for (const [pool, { totalCount, idleCount, waitingCount }] of Object.entries(pools)) {
      result.observe(connections, totalCount - idleCount, { component, pool, state: 'used' });
      result.observe(connections, idleCount, { component, pool, state: 'idle' });
      result.observe(waiting, waitingCount, { component, pool });
    }
  });
}
