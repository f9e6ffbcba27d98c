import type { MessageInitShape } from '@bufbuild/protobuf';
import { sql } from 'kysely';
import { AppError } from '@stowage/common/errors';
import { enqueueJob } from '@stowage/common/jobs/enqueue';
import { fullReconcileJob } from '@stowage/common/jobs/full-reconcile';
import type { CallContext } from '@stowage/common/rpc/context';
import {
  DeleteBackendResponseSchema,
  SetBackendEnabledResponseSchema,
} from '@stowage/proto/stowage/backend_registry/v1/backend';
import type {
  DeleteBackendRequest,
  SetBackendEnabledRequest,
} from '@stowage/proto/stowage/backend_registry/v1/backend';
import { getBackend } from './backends.ts';
import { change, lockBackend, requireVersion, withHealth } from './change.ts';
import type { ChangeNeeds } from './change.ts';
import { tellOfChange } from './change-notice.ts';
import { deleteBlockers } from './delete-blockers.ts';

/** Enables a backend, and checks it then, or disables it. Throws `not_found`, `precondition_failed`. */
export async function setBackendEnabled(
  needs: ChangeNeeds,
  { id, enabled, ifMatch }: SetBackendEnabledRequest,
  context: CallContext,
): Promise<MessageInitShape<typeof SetBackendEnabledResponseSchema>> {
  const made = await change(needs, context, SetBackendEnabledResponseSchema, null, async (trx) => {
    const row = await lockBackend(trx, id);
    requireVersion(row, ifMatch);
    if (row.enabled !== enabled) {
      const values = { enabled, version: sql<string>`version + 1`, updated_at: sql<Date>`now()` };
      await trx.updateTable('registry.backends').set(values).where('id', '=', id).execute();
      await tellOfChange(trx, id);
      const reason = enabled ? 'backend_enabled' : 'backend_disabled';
      await enqueueJob(trx, fullReconcileJob({ reason, backend_id: id }, id));
    }
    return { backend: await getBackend(trx, id) };
  });
  if (enabled) await needs.backends.check(id, 'decides');
  return withHealth(needs.db, made);
}

/**
 * Deletes a backend that nothing needs. The lock on its row waits for whoever is about to refer to it, and keeps others
 * from it. Throws `not_found`, `precondition_failed`, `backend_delete_refused` with `blockers`.
 */
export async function deleteBackend(
  needs: ChangeNeeds,
  { id, ifMatch }: DeleteBackendRequest,
  context: CallContext,
): Promise<MessageInitShape<typeof DeleteBackendResponseSchema>> {
  await change(needs, context, DeleteBackendResponseSchema, null, async (trx) => {
    const row = await lockBackend(trx, id);
    requireVersion(row, ifMatch);
    const blockers = await deleteBlockers(trx, row);
    if (blockers.length > 0) {
      const codes = blockers.map(({ code }) => code).join(', ');
      throw new AppError('backend_delete_refused', `The backend is still needed: ${codes}.`, { members: { blockers } });
    }
    await trx.deleteFrom('registry.backends').where('id', '=', id).execute();
    await tellOfChange(trx, id);
    return {};
  });
  return {};
}
