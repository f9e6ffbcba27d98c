import type { CallContext } from '@stowage/common/rpc/context';
import { withinWait } from '@stowage/common/within-wait';
import { sql } from 'kysely';
import type { AppDependencies } from './app-types.ts';

type Status = 'ready' | 'degraded' | 'unavailable';

export interface Check {
  name: string;
  status: Status;
  latency_ms: number;
  detail: string | null;
}

export interface Readiness {
  status: Status;
  checks: Check[];
}

const timeoutMs = 2_000;

/** What requests can do without for a while, and the service that knows how it does. */
const withoutHarm = [{ name: 'event_bus', toldBy: 'placement' }] as const;

/**
 * Asks everything that a client's request needs, side by side, each for 2 s at most. What requests can do without makes
 * the whole `degraded` only.
 */
export async function checkReadiness(dependencies: AppDependencies, context: CallContext): Promise<Readiness> {
  const { db, systems, isReady } = dependencies;
  const told = new Map<string, Check>();
  const checks = await Promise.all([
    timed('gateway', async () => (isReady() ? null : 'starting or stopping')),
    timed('database', async () => {
      await sql`select 1`.execute(db);
      return null;
    }),
    ...[...systems].map(([service, system]) =>
      timed(service, async () => {
        const answer = await system.check({ service }, context, { timeoutMs });
        for (const { name, works, detail } of answer.dependencies)
          told.set(name, { name, status: works ? 'ready' : 'degraded', latency_ms: 0, detail: works ? null : detail });
        return answer.ready ? null : answer.detail;
      }),
    ),
  ]);
  const latencies = new Map(checks.map((check) => [check.name, check.latency_ms]));
  for (const { name, toldBy } of withoutHarm) {
    const check = told.get(name) ?? { name, status: 'degraded', detail: `${toldBy} does not tell` };
    checks.push({ ...check, latency_ms: latencies.get(toldBy) ?? 0 });
  }
  return { status: worst(checks), checks };
}

function worst(checks: readonly Check[]): Status {
  const statuses = checks.map(({ status }) => status);
  if (statuses.includes('unavailable')) return 'unavailable';
  return statuses.includes('degraded') ? 'degraded' : 'ready';
}

async function timed(name: string, ask: () => Promise<string | null>): Promise<Check> {
  const start = performance.now();
  const answer = ask().then(
    (detail) => ({ detail }),
    () => ({ detail: 'can not be reached' }),
  );
  const { detail } = (await withinWait(answer, timeoutMs)) ?? { detail: 'no answer in time' };
  const latency = Math.round((performance.now() - start) * 10) / 10;
  return { name, status: detail === null ? 'ready' : 'unavailable', latency_ms: latency, detail };
}
