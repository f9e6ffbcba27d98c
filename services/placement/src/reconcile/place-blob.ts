import { unavailable } from '@stowage/common/errors';
import { PostponedJob } from '@stowage/common/jobs/job';
import type { JobHandler } from '@stowage/common/jobs/job';
import { backgroundContext } from '@stowage/common/rpc/context';
import type { BackendSlots } from '../backend-slots.ts';
import { textParam } from '../job-params.ts';
import { executeBlob } from './execute-blob.ts';
import { queueFollowUp } from './follow-up.ts';
import { RemoteExecutor } from './remote-executor.ts';
import { SlottedExecutor } from './slotted-executor.ts';
import { detailOf } from './tally.ts';
import { FreshView, loadView } from './view.ts';
import type { ReconcileNeeds } from './walk.ts';

/**
 * Brings one blob to where its policies say. Fails, to be tried again, where a backend failed it; the last time a full
 * reconcile is queued that goes on trying. Is put off where a backend has enough to do.
 */
export function placeBlob({ db, services, limits }: Omit<ReconcileNeeds, 'atOnce'>, slots: BackendSlots): JobHandler {
  return async (job, { signal }) => {
    const remote = new RemoteExecutor(services, backgroundContext(signal, job.id), limits.freshMs);
    const executor = new SlottedExecutor(remote, slots);
    const blob = await executor.reload(textParam(job, 'blob_id'));
    if (!blob) return { gone: true };
    const fresh = new FreshView(() => loadView(db, limits));
    const { failures, plan, ...counts } = await executeBlob({ executor, view: () => fresh.get(), signal }, blob);
    const [failure] = failures;
    if (executor.busy) throw new PostponedJob(executor.busy.delayMs);
    if (failure && job.attempt >= job.maxAttempts) await queueFollowUp(db, 0);
    if (failure) throw unavailable(`${failure.detail} (backend ${failure.backendId}: ${failure.code})`);
    const problems = plan.problems.map((problem) => ({ code: problem.code, detail: detailOf(problem) }));
    return { ...counts, lost: plan.lost, problems };
  };
}
