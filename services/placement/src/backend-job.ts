import { AppError } from '@stowage/common/errors';
import type { JobHandler, JsonObject } from '@stowage/common/jobs/job';
import { backgroundContext } from '@stowage/common/rpc/context';
import type { CallContext } from '@stowage/common/rpc/context';
import { textParam } from './job-params.ts';

/** A job that asks something of the backend it names. One that is gone needs no more. */
export function backendJob(ask: (id: string, context: CallContext) => Promise<JsonObject>): JobHandler {
  return async (job, { signal }) => {
    try {
      return await ask(textParam(job, 'backend_id'), backgroundContext(signal, job.id));
    } catch (error) {
      if (error instanceof AppError && error.code === 'not_found') return { gone: true };
      throw error;
    }
  };
}
