import type { MessageInitShape } from '@bufbuild/protobuf';
import type pg from 'pg';
import type { ClientBase } from 'pg';
import type { Readable } from 'node:stream';
import { isRetryable, toDatabaseError } from '@stowage/common/database/database-error';
import { AppError } from '@stowage/common/errors';
import type { CallContext } from '@stowage/common/rpc/context';
import type { ImportPlanRequest, ImportPlanResponseSchema } from '@stowage/proto/stowage/export/v1/export';
import { readEnvelope } from '../document/read-envelope.ts';
import { sectionNames } from '../document/records.ts';
import { changedMeanwhile, spendPlan, takePlan } from '../plan/plans.ts';
import type { Plan } from '../plan/plans.ts';
import { stateDigest } from '../plan/state-digest.ts';
import { importRequest } from './import-request.ts';
import type { ImportRequest } from './import-request.ts';
import { importStaged } from './import-staged.ts';
import { quietRemovals, requireNoRemovals } from './quiet-removals.ts';
import { aloneWith, lockMetadata } from './lock-metadata.ts';
import type { Turns } from './turns.ts';

export interface ImportNeeds {
  bulk: pg.Pool;
  /** Who waits for another import holds no connection, which that one may need. */
  turns: Turns;
  /** The most bytes of a request, expanded where it is compressed. */
  limit: number;
  before: StateBefore;
  /** Aborted when the process stops: what is not committed by then is given up. */
  stopping: AbortSignal;
}

/** How the metadata of before an import are kept. */
export interface StateBefore {
  /** Writes the document of now as an export that is not kept yet. */
  write(signal: AbortSignal): Promise<{ exportId: string }>;
  /** Keeps it from the end of the transaction on. */
  keep(client: ClientBase, exportId: string): Promise<void>;
  /** Forgets it where no import came of it. */
  drop(exportId: string): Promise<void>;
}

type Answer = MessageInitShape<typeof ImportPlanResponseSchema>;

/** How often the locks are asked for again, after a deadlock with a writer. */
const attempts = 5;

/**
 * Replaces all metadata by the document of a plan, all or nothing. Errors as ImportPlan says. A caller that goes away ends it
 * until it begins to write; from then on it goes on to its end.
 */
export async function importPlan(
  needs: ImportNeeds,
  { confirmReplace, gzip }: Pick<ImportPlanRequest, 'confirmReplace' | 'gzip'>,
  body: Readable,
  context: CallContext,
): Promise<Answer> {
  const { actor, signal } = context;
  if (!actor) throw new AppError('forbidden', 'An import is a user’s.');
  const envelope = await readEnvelope(needs.bulk, body, { gzip, limit: needs.limit, signal });
  const request = importRequest(envelope, confirmReplace);
  const owner = { token: request.token, userId: actor.userId };
  const importNow = (): Promise<Answer> =>
    aloneWith(needs.bulk, needs.stopping, async (client) => {
      // Before the metadata of now are written down: most refusals need not wait for that.
      requireSame(await inTransaction(client, () => takePlan(client, owner)), request);
      await quietRemovals(client, signal);
      signal.throwIfAborted();
      const { exportId } = await needs.before.write(signal);
      try {
        signal.throwIfAborted();
        return await replaceAll(needs, client, { owner, request, exportId });
      } catch (error) {
        await needs.before.drop(exportId).catch(() => undefined);
        throw error;
      }
    });
  return needs.turns.run(importNow);
}

interface Wanted {
  owner: { token: string; userId: string };
  request: ImportRequest;
  exportId: string;
}

async function replaceAll(needs: ImportNeeds, client: pg.PoolClient, wanted: Wanted): Promise<Answer> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await inTransaction(client, async () => {
        const plan = requireSame(await takePlan(client, wanted.owner), wanted.request);
        await lockMetadata(client);
        if ((await stateDigest(client)) !== plan.stateDigest) throw changedMeanwhile();
        await requireNoRemovals(client);
        // Told now: once it holds, nothing that is away may make the import look as if it failed.
        const job = await importStaged(client, { number: plan.stagedNumber, ...plan });
        await needs.before.keep(client, wanted.exportId);
        await spendPlan(client, plan);
        const imported = sectionNames.map((section) => ({ section, count: BigInt(plan.counts[section] ?? 0) }));
        return { imported, job, previousExportId: wanted.exportId };
      });
    } catch (error) {
      if (attempt === attempts || !isRetryable(error)) throw error;
    }
  }
}

/** Throws what PostgreSQL said. */
async function inTransaction<R>(client: pg.PoolClient, work: () => Promise<R>): Promise<R> {
  await client.query('begin');
  try {
    const result = await work();
    await client.query('commit');
    return result;
  } catch (error) {
    await client.query('rollback').catch(() => undefined);
    throw isRetryable(error) ? error : toDatabaseError(error);
  }
}

function requireSame(plan: Plan, { documentSha256 }: ImportRequest): Plan {
  if (documentSha256 === null || documentSha256 === plan.documentSha256) return plan;
  throw new AppError('plan_stale', 'The document is not the one that this plan was made of.');
}
