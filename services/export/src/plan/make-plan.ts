import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type { MessageInitShape } from '@bufbuild/protobuf';
import type pg from 'pg';
import type { Readable } from 'node:stream';
import { AppError } from '@stowage/common/errors';
import type { CallContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import type { BackendJudgement, BackendService } from '@stowage/proto/stowage/backend_registry/v1/backend';
import type { PlanRestoreRequest, PlanRestoreResponseSchema } from '@stowage/proto/stowage/export/v1/export';
import { cancelOnAbort } from '../document/cancel-on-abort.ts';
import { findingsMax } from '../document/findings.ts';
import { stageDocument } from '../document/stage-document.ts';
import type { StagedDocument } from '../document/stage-document.ts';
import { dropStagedTables } from '../document/staged-tables.ts';
import { changedBackends, planBackends, unjudged } from './backend-changes.ts';
import type { BackendPlan, ChangedBackend, Finding } from './backend-changes.ts';
import { inBulkTransaction } from './bulk-transaction.ts';
import { planWarnings } from './plan-warnings.ts';
import { keepPlan } from './plans.ts';
import { sectionChanges } from './section-changes.ts';
import type { SectionChanges } from './section-changes.ts';
import { stateDigest } from './state-digest.ts';

export interface PlanNeeds {
  bulk: pg.Pool;
  backends: Pick<Client<typeof BackendService>, 'judgeBackends'>;
  /** The most bytes of a document, expanded. */
  limit: number;
  /** For how long content without a file is kept. */
  graceMs: number;
}

/** How long backend-registry may take to look up names of hosts and folders. */
const judgeMs = 30_000;
/** Of a document that is planned: each is looked up, and compared with each other one. */
const backendsMax = 1_000;

/** Reads a document, tells what its import would do, and keeps it for that under a token. Errors as PlanRestore says. */
export async function planRestore(
  needs: PlanNeeds,
  { gzip }: PlanRestoreRequest,
  body: Readable,
  context: CallContext,
): Promise<MessageInitShape<typeof PlanRestoreResponseSchema>> {
  const { actor, signal } = context;
  if (!actor) throw new AppError('forbidden', 'A plan is made for a user.');
  const reading = { gzip, limit: needs.limit, signal, keep: true };
  const { number, instanceId, exportedAt, ...validation } = await stageDocument(needs.bulk, body, reading);
  if (number === null || instanceId === null || exportedAt === null) return { validation };
  let kept = false;
  try {
    const found = await look(needs, { number, exportedAt }, signal);
    const backends = await judge(needs, found.backends, context);
    const answer = {
      validation,
      changes: found.changes,
      backends: backends.changes,
      warnings: [...found.warnings, ...backends.warnings, ...validation.warnings].slice(0, findingsMax),
      blockers: backends.blockers,
    };
    if (backends.blockers.length > 0) return answer;
    signal.throwIfAborted();
    const plan = {
      userId: actor.userId,
      documentSha256: validation.sha256,
      stateDigest: found.stateDigest,
      stagedNumber: number,
      counts: countsOf(validation),
      knownBackends: backends.knownIds,
      instanceId,
    };
    const { token, expiresAt } = await inBulkTransaction(needs.bulk, (client) => keepPlan(client, plan));
    kept = true;
    return { ...answer, validationToken: token, expiresAt: timestampFromDate(expiresAt) };
  } finally {
    // Where that fails housekeeping does it.
    if (!kept) await inBulkTransaction(needs.bulk, (client) => dropStagedTables(client, number)).catch(() => undefined);
  }
}

/** What is seen of one snapshot, with its digest. */
interface Look {
  stateDigest: string;
  changes: SectionChanges[];
  backends: ChangedBackend[];
  warnings: Finding[];
}

function look(
  { bulk, graceMs }: PlanNeeds,
  { number, exportedAt }: { number: number; exportedAt: Date },
  signal: AbortSignal,
): Promise<Look> {
  const snapshot = 'begin isolation level repeatable read read only';
  const work = async (client: pg.PoolClient): Promise<Look> => {
    const stopCancelling = cancelOnAbort(client, signal);
    try {
      return {
        stateDigest: await stateDigest(client),
        changes: await sectionChanges(client, number),
        backends: await changedBackends(client, number),
        warnings: await planWarnings(client, number, exportedAt, graceMs),
      };
    } finally {
      await stopCancelling();
    }
  };
  return inBulkTransaction(bulk, work, snapshot);
}

async function judge(
  needs: PlanNeeds,
  backends: readonly ChangedBackend[],
  context: CallContext,
): Promise<BackendPlan> {
  const wanted = backends.flatMap((backend) => (backend.wanted ? [backend.wanted.backend] : []));
  if (wanted.length > backendsMax) return unjudged(backends, backendsMax);
  const { judgements } = await needs.backends.judgeBackends({ backends: wanted }, context, { timeoutMs: judgeMs });
  return planBackends(backends, new Map(judgements.map((one): [string, BackendJudgement] => [one.id, one])));
}

function countsOf({ counts }: Pick<StagedDocument, 'counts'>): Record<string, number> {
  return Object.fromEntries(counts.map(({ section, count }) => [section, Number(count)]));
}
