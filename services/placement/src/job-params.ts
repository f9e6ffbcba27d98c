import { PermanentJobError } from '@stowage/common/jobs/job';
import type { ClaimedJob } from '@stowage/common/jobs/job';

/** A parameter that is a text. Throws PermanentJobError where it is none. */
export function textParam(job: ClaimedJob, name: string): string {
  const value = job.params[name];
  if (typeof value !== 'string') throw new PermanentJobError(`the parameter ${name} is missing`);
  return value;
}

/** The size of a blob, written as a string or number: sizes fit both. */
export function sizeParam(job: ClaimedJob): bigint {
  const value = job.params['size'];
  if (typeof value !== 'string' && typeof value !== 'number')
    throw new PermanentJobError('the parameter size is missing');
  return BigInt(value);
}
