import type { MessageInitShape } from '@bufbuild/protobuf';
import { newId } from '@stowage/common/ids';
import { answeredBefore } from '@stowage/common/jobs/idempotency';
import { normalizeName } from '@stowage/common/names';
import type { CallContext } from '@stowage/common/rpc/context';
import { CreateBackendResponseSchema } from '@stowage/proto/stowage/backend_registry/v1/backend';
import type { CreateBackendRequest } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { getBackend } from './backends.ts';
import { change, withHealth } from './change.ts';
import type { ChangeNeeds } from './change.ts';
import { endOtherDefault, lockDefault, requireFitForDefault } from './become-default.ts';
import { checkPlace } from './config/check-place.ts';
import { parseConfig, parseType } from './config/parse-config.ts';
import { writeSecrets } from './secrets/secret-table.ts';

/** Makes a backend and checks it. Throws `validation_failed`, `name_conflict`. */
export async function createBackend(
  needs: ChangeNeeds,
  request: CreateBackendRequest,
  context: CallContext,
): Promise<MessageInitShape<typeof CreateBackendResponseSchema>> {
  const output = CreateBackendResponseSchema;
  const before = await answeredBefore(needs.db, context, output);
  if (before) return withHealth(needs.db, before);
  const type = parseType(request.type);
  const name = normalizeName(request.name);
  const { isDefault } = request;
  if (isDefault) requireFitForDefault(type);
  const { config, secrets } = parseConfig(type, request.config ?? {}, null);
  const backend = { id: newId(), type, config };
  await checkPlace(needs, backend);
  const made = await change(needs, context, output, backend, async (trx) => {
    const { id } = backend;
    if (isDefault) {
      await lockDefault(trx);
      await endOtherDefault(trx, id);
    }
    await trx.insertInto('registry.backends').values({ id, name, type, config, is_default: isDefault }).execute();
    await writeSecrets(trx, needs.keys(), id, secrets);
    return { backend: await getBackend(trx, id) };
  });
  if (made.backend?.id === backend.id) await needs.backends.check(backend.id, 'decides');
  return withHealth(needs.db, made);
}
