import { unavailable } from '@stowage/common/errors';
import type { JobHandler } from '@stowage/common/jobs/job';
import { backgroundContext } from '@stowage/common/rpc/context';
import { textParam } from '../job-params.ts';
import { executeBlob } from './execute-blob.ts';
import type { ReconcileNeeds } from './full-reconcile.ts';
import { RemoteExecutor } from './remote-executor.ts';
import { detailOf } from './tally.ts';
import { FreshView, loadView } from './view.ts';

/** Brings one blob to where its policies say. Fails, to be tried again, where a backend failed it. */
export function placeBlob({ db, services, limits }: Omit<ReconcileNeeds, 'atOnce'>): JobHandler {
  return async (job, { signal }) => {
    const executor = new RemoteExecutor(services, backgroundContext(signal, job.id), limits.freshMs);
    const blob = await executor.reload(textParam(job, 'blob_id'));
    if (!blob) return { gone: true };
    const fresh = new FreshView(() => loadView(db, limits));
    const { failures, plan, ...counts } = await executeBlob({ executor, view: () => fresh.get(), signal }, blob);
    const [failure] = failures;
    if (failure) throw unavailable(`${failure.detail} (backend ${failure.backendId}: ${failure.code})`);
    const problems = plan.problems.map((problem) => ({ code: problem.code, detail: detailOf(problem) }));
    return { ...counts, lost: plan.lost, problems };
  };
}
