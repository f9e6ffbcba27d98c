import { counter } from '@stowage/common/runtime/metrics';

/** Counts what becomes of uploads. */
export const uploadEvents = counter('stowage_uploads_total', 'Uploads, by what became of them.', [
  { event: 'started' },
  { event: 'finalized' },
  { event: 'terminated' },
  { event: 'expired' },
]);
