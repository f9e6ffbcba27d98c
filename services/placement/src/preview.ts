import type { MessageInitShape } from '@bufbuild/protobuf';
import { query } from '@stowage/common/database/transaction';
import { validationError } from '@stowage/common/errors';
import { removalsHeldForMs } from '@stowage/common/jobs/removal-hold';
import type { CallContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import type { ReplicaService } from '@stowage/proto/stowage/catalog/v1/replica';
import type {
  PreviewPlacementRequest,
  PreviewPlacementResponseSchema,
  TrialPolicy,
} from '@stowage/proto/stowage/placement/v1/policy';
import type { Kysely } from 'kysely';
import { loadBackends } from './backend-standing.ts';
import { copiesFaults, requireFit } from './change-policy.ts';
import type { PlanLimits, WantedCopies, World } from './planner/facts.ts';
import { planBlob } from './planner/plan-blob.ts';
import type { BlobPlan } from './planner/plan-blob.ts';
import { defaultClass, listPolicies, noPolicy } from './policies.ts';
import { PolicyBook } from './policy-book.ts';
import type { BlobFacts } from './reconcile/executor.ts';
import { blobFacts } from './reconcile/remote-executor.ts';
import { detailOf } from './reconcile/tally.ts';
import type { Tables } from './tables.ts';

type Preview = MessageInitShape<typeof PreviewPlacementResponseSchema>;

interface Needs {
  db: Kysely<Tables>;
  replicas: Client<typeof ReplicaService>;
  limits: PlanLimits;
}

const pageSize = 1_000;
const listTimeoutMs = 30_000;

/**
 * Tells what a full reconcile would do now, by the same planner over the same rows, page by page: memory does not grow
 * with the number of files. Throws `validation_failed`, and `not_found` for a class without a policy that none is tried for.
 */
export async function previewPlacement(
  { db, replicas, limits }: Needs,
  request: Pick<PreviewPlacementRequest, 'fileClass' | 'trial'>,
  context: CallContext,
): Promise<Preview> {
  const book = await bookFor(db, request);
  const removalsHeld = (await query(() => removalsHeldForMs(db))) > 0;
  const world: World = { backends: await loadBackends(db), limits, removalsHeld };
  const sums = new PreviewSums();
  let after = '';
  for (;;) {
    context.signal.throwIfAborted();
    const { items } = await replicas.listBlobs({ after, limit: pageSize }, context, { timeoutMs: listTimeoutMs });
    for (const item of items) {
      const blob = blobFacts(item);
      const fileClass = blob.fileClasses[0];
      if (fileClass === undefined) continue;
      if (request.fileClass !== undefined && book.governing(fileClass) !== request.fileClass) continue;
      sums.add(fileClass, blob, planBlob(world, book.toPlan(blob)));
    }
    after = items.at(-1)?.id ?? after;
    if (items.length < pageSize) return sums.result();
  }
}

/** The policies of today, or as they would be with the one that is tried. */
async function bookFor(
  db: Kysely<Tables>,
  { fileClass, trial }: Pick<PreviewPlacementRequest, 'fileClass' | 'trial'>,
): Promise<PolicyBook> {
  const policies: (WantedCopies & { fileClass: string })[] = await listPolicies(db);
  if (!trial) {
    if (fileClass !== undefined && !policies.some((policy) => policy.fileClass === fileClass)) throw noPolicy();
    return new PolicyBook(policies);
  }
  if (fileClass === undefined)
    throw validationError([{ pointer: '?file_class', detail: 'is needed beside backends and replicas' }]);
  const inForce = policies.find((policy) => policy.fileClass === fileClass);
  const tried = await wantedBy(db, trial, inForce ?? policies.find((policy) => policy.fileClass === defaultClass));
  return new PolicyBook([...policies, { fileClass, ...tried }]);
}

async function wantedBy(
  db: Kysely<Tables>,
  trial: TrialPolicy,
  inForce: WantedCopies | undefined,
): Promise<WantedCopies> {
  const backendIds = trial.backendIds.length > 0 ? trial.backendIds : (inForce?.backendIds ?? []);
  const replicas = trial.replicas ?? Math.min(inForce?.replicas ?? 1, backendIds.length);
  const faults = await copiesFaults(db, { backendIds, replicas, syncReplicas: 1 });
  requireFit(
    faults
      .filter(({ pointer }) => pointer !== '/sync_replicas')
      .map(({ pointer, detail }) => ({ pointer: `?${pointer.split('/')[1] ?? ''}`, detail })),
  );
  return { backendIds, replicas };
}

interface ClassSums {
  files: bigint;
  bytes: bigint;
  satisfied: bigint;
  toCopy: bigint;
  toRemove: bigint;
  unsatisfiable: bigint;
  lost: bigint;
}

interface BackendSums {
  addReplicas: bigint;
  addBytes: bigint;
  removeReplicas: bigint;
  removeBytes: bigint;
}

class PreviewSums {
  readonly #classes = new Map<string, ClassSums>();
  readonly #backends = new Map<string, BackendSums>();
  readonly #problems = new Map<string, NonNullable<Preview['problems']>[number] & { files: bigint }>();

  add(fileClass: string, { size }: BlobFacts, { steps, problems, lost }: BlobPlan): void {
    const sums = this.#classOf(fileClass);
    sums.files += 1n;
    sums.bytes += size;
    if (lost) sums.lost += 1n;
    else if (problems.some(({ code }) => code !== 'removals_held')) sums.unsatisfiable += 1n;
    else if (steps.length === 0) sums.satisfied += 1n;
    for (const step of steps) {
      if (step.kind === 'copy') {
        sums.toCopy += 1n;
        const backend = this.#backendOf(step.to);
        backend.addReplicas += 1n;
        backend.addBytes += size;
      } else if (step.kind === 'remove') {
        sums.toRemove += 1n;
        const backend = this.#backendOf(step.backendId);
        backend.removeReplicas += 1n;
        backend.removeBytes += size;
      }
    }
    for (const problem of problems) this.#addProblem(fileClass, problem);
  }

  /** Each list by what it is about. */
  result(): Preview {
    const byKey = <T>(map: Map<string, T>): [string, T][] =>
      [...map].sort(([one], [other]) => (one < other ? -1 : one > other ? 1 : 0));
    return {
      classes: byKey(this.#classes).map(([fileClass, sums]) => ({ fileClass, ...sums })),
      backends: byKey(this.#backends).map(([backendId, sums]) => ({ backendId, ...sums })),
      problems: byKey(this.#problems).map(([, problem]) => problem),
    };
  }

  #addProblem(fileClass: string, problem: BlobPlan['problems'][number]): void {
    const backendId = 'backendId' in problem ? problem.backendId : undefined;
    const key = [problem.code, fileClass, backendId ?? ''].join(' ');
    const known = this.#problems.get(key);
    if (known) known.files += 1n;
    else {
      const detail = detailOf(problem);
      this.#problems.set(key, { code: problem.code, fileClass, backendId, files: 1n, detail });
    }
  }

  #classOf(fileClass: string): ClassSums {
    const known = this.#classes.get(fileClass);
    if (known) return known;
    const sums = { files: 0n, bytes: 0n, satisfied: 0n, toCopy: 0n, toRemove: 0n, unsatisfiable: 0n, lost: 0n };
    this.#classes.set(fileClass, sums);
    return sums;
  }

  #backendOf(backendId: string): BackendSums {
    const known = this.#backends.get(backendId);
    if (known) return known;
    const sums = { addReplicas: 0n, addBytes: 0n, removeReplicas: 0n, removeBytes: 0n };
    this.#backends.set(backendId, sums);
    return sums;
  }
}
