import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { describeError } from '../describe-error.ts';
import { schemaMismatch } from '../database/migrate.ts';
import { AppError, unavailable } from '../errors.ts';
import type { Endpoint } from '../rpc/contract.ts';
import type { Lifecycle } from './lifecycle.ts';
import type { Logger } from './logger.ts';
import { MendableError } from './run-process.ts';
import type { Service } from './service.ts';

const retryMs = { first: 250, last: 5_000 };
const schemaPollMs = 1_000;

/** Waits, unready, until the migrations have run: pods may start before the job that migrates. */
export async function waitForSchema(pool: pg.Pool, lifecycle: Lifecycle, logger: Logger): Promise<void> {
  while (lifecycle.state === 'starting') {
    const problem = await schemaMismatch(pool).catch(describeError);
    if (problem === null) return lifecycle.waitFor(null);
    lifecycle.waitFor({ detail: `Waiting for the database: ${problem}`, blocked: false });
    logger.warn({ problem }, 'Waiting for the database.');
    await pause(schemaPollMs, lifecycle);
  }
}

/**
 * Starts the service, again and again while what it needs is away or a mistake stands that can be mended meanwhile: a
 * process that ended for it would only be started again, by someone who waits longer each time. Whether it started: not
 * where the process is to stop before. Throws what else a start throws.
 */
export async function startWhenPossible(
  service: Pick<Service, 'start'>,
  lifecycle: Lifecycle,
  logger: Logger,
): Promise<boolean> {
  for (let waitMs = retryMs.first; lifecycle.state === 'starting'; waitMs = Math.min(waitMs * 2, retryMs.last)) {
    try {
      await service.start();
      lifecycle.waitFor(null);
      return true;
    } catch (error) {
      if (!mayPass(error) || lifecycle.state !== 'starting') throw error;
      const blocked = error instanceof MendableError;
      const cause = error.cause === undefined ? '' : ` (${describeError(error.cause)})`;
      const detail = `${describeError(error)}${cause}`;
      lifecycle.waitFor({ detail, blocked });
      logger[blocked ? 'error' : 'warn']({ problem: detail }, 'The start has to wait.');
      await pause(waitMs, lifecycle);
    }
  }
  return false;
}

/** The endpoint, with every call refused as `unavailable` until the process has started. */
export function onceStarted(endpoint: Endpoint, service: string, lifecycle: Lifecycle): Endpoint {
  return {
    ...endpoint,
    async call(method, request, context) {
      if (lifecycle.state === 'starting') throw unavailable(`${service} is still starting.`);
      return endpoint.call(method, request, context);
    },
  };
}

function mayPass(error: unknown): error is AppError | MendableError {
  return error instanceof MendableError || (error instanceof AppError && error.code === 'unavailable');
}

async function pause(ms: number, { draining }: Lifecycle): Promise<void> {
  await sleep(ms, undefined, { signal: draining }).catch(() => undefined);
}
