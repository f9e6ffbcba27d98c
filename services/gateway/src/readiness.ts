import type { CallContext } from '@stowage/common/rpc/context';
import { sql } from 'kysely';
import type { AppDependencies } from './app-types.ts';

export interface Check {
  name: string;
  status: 'ready' | 'unavailable';
  latency_ms: number;
  detail: string | null;
}

export interface Readiness {
  status: 'ready' | 'unavailable';
  checks: Check[];
}

const timeoutMs = 2_000;

/** Asks everything that a client's request needs, side by side, each for 2 s at most. */
export async function checkReadiness(dependencies: AppDependencies, context: CallContext): Promise<Readiness> {
  const { db, systems, isReady } = dependencies;
  const checks = await Promise.all([
    timed('gateway', async () => (isReady() ? null : 'starting or stopping')),
    timed('database', async () => {
      await sql`select 1`.execute(db);
      return null;
    }),
    ...[...systems].map(([name, system]) =>
      timed(name, async () => {
        const { ready, detail } = await system.check({ service: name }, context, { timeoutMs });
        return ready ? null : detail;
      }),
    ),
  ]);
  return { status: checks.every((check) => check.status === 'ready') ? 'ready' : 'unavailable', checks };
}

async function timed(name: string, ask: () => Promise<string | null>): Promise<Check> {
  const start = performance.now();
  const { promise: late, resolve } = Promise.withResolvers<string>();
  const timer = setTimeout(() => resolve('no answer in time'), timeoutMs);
  const detail = await Promise.race([ask(), late]).catch(() => 'can not be reached');
  clearTimeout(timer);
  const latency = Math.round((performance.now() - start) * 10) / 10;
  return { name, status: detail === null ? 'ready' : 'unavailable', latency_ms: latency, detail };
}
