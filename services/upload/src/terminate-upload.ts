import { AppError } from '@stowage/common/errors';
import type { CallContext } from '@stowage/common/rpc/context';
import type { TerminateUploadRequest } from '@stowage/proto/stowage/upload/v1/upload';
import { endUpload, freeContent } from './free-content.ts';
import type { UploadParts } from './parts.ts';
import { uploadEvents } from './upload-metrics.ts';
import { findUpload } from './uploads.ts';

/** Ends an unfinished upload, stops its writer and frees its space. Never touches a file that came of it. */
export async function terminateUpload(
  parts: UploadParts,
  request: TerminateUploadRequest,
  context: CallContext,
): Promise<Record<string, never>> {
  const upload = await findUpload(parts.reads, request.id, context);
  if (!(await endUpload(parts.db, upload.id))) {
    const { state } = await findUpload(parts.reads, request.id, context);
    throw new AppError('state_conflict', refusal(state));
  }
  uploadEvents.add(1, { event: 'terminated' });
  try {
    await parts.leases.stopWriter(upload.id);
    await freeContent(parts, upload, context);
  } catch (error) {
    // It has ended for good: the job that expires uploads frees what is left.
    parts.logger.warn({ err: error, upload_id: upload.id }, 'The content of an ended upload is freed later.');
  }
  return {};
}

function refusal(state: string): string {
  return state === 'finalized'
    ? 'The upload has become a file: delete the file instead.'
    : 'The upload is being made a file: finalize it to the end, or let it expire.';
}
