import type { JsonObject, MessageInitShape } from '@bufbuild/protobuf';
import { sql } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import { answeredBefore } from '@stowage/common/jobs/idempotency';
import { normalizeName } from '@stowage/common/names';
import type { CallContext } from '@stowage/common/rpc/context';
import { UpdateBackendResponseSchema } from '@stowage/proto/stowage/backend_registry/v1/backend';
import type { UpdateBackendRequest } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { findBackend } from './backend-row.ts';
import { getBackend } from './backends.ts';
import { endOtherDefault, lockDefault, requireFitForDefault } from './become-default.ts';
import { change, lockBackend, requireVersion, withHealth } from './change.ts';
import type { ChangeNeeds, Trx } from './change.ts';
import { tellOfChange } from './change-notice.ts';
import { checkPlace } from './config/check-place.ts';
import { isMoved, parseConfig } from './config/parse-config.ts';
import type { ParsedConfig } from './config/parse-config.ts';
import { holdingsOf } from './delete-blockers.ts';
import { writeSecrets } from './secrets/secret-table.ts';
import type { BackendRow } from './tables.ts';

/** Someone else's change came between looking at the backend and changing it. */
class ChangedMeanwhile extends AppError {
  constructor() {
    super('unavailable', 'The backend was changed at the same moment: try again.', { members: { retry_after: 1 } });
  }
}

const attempts = 8;

/** Changes name and configuration and checks the backend. Errors as UpdateBackend says. */
export async function updateBackend(
  needs: ChangeNeeds,
  request: UpdateBackendRequest,
  context: CallContext,
): Promise<MessageInitShape<typeof UpdateBackendResponseSchema>> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await tryUpdate(needs, request, context);
    } catch (error) {
      if (!(error instanceof ChangedMeanwhile) || attempt === attempts) throw error;
    }
  }
}

async function tryUpdate(
  needs: ChangeNeeds,
  request: UpdateBackendRequest,
  context: CallContext,
): Promise<MessageInitShape<typeof UpdateBackendResponseSchema>> {
  const output = UpdateBackendResponseSchema;
  const before = await answeredBefore(needs.db, context, output);
  if (before) return withHealth(needs.db, before);
  const row = await findBackend(needs.db, request.id);
  requireVersion(row, request.ifMatch);
  const isDefault = wantedDefault(row, request.isDefault);
  const name = request.name === undefined ? row.name : normalizeName(request.name);
  const parsed = parseConfig(row.type, request.config ?? {}, row.config);
  const moved = isMoved(row.type, row.config, parsed.config);
  const next = { id: row.id, type: row.type, config: parsed.config };
  if (moved) await checkPlace(needs, next);
  const carries = moved && (await carriesOn(needs, row, parsed));
  const made = await change(needs, context, output, moved ? next : null, async (trx) => {
    if (isDefault) await lockDefault(trx);
    const now = await lockBackend(trx, row.id);
    requireVersion(now, request.ifMatch);
    if (now.version !== row.version) throw new ChangedMeanwhile();
    if (moved && !carries) await requireNothingHeld(trx, row.id);
    await writeSecrets(trx, needs.keys(), row.id, parsed.secrets);
    if (isDefault) await endOtherDefault(trx, row.id);
    await applyUpdate(trx, row, { name, isDefault, parsed, marked: moved ? carries : row.marked });
    return { backend: await getBackend(trx, row.id) };
  });
  needs.backends.doubt(row.id);
  await needs.backends.check(row.id, 'decides');
  return withHealth(needs.db, made);
}

/** There is always a default backend once there was one: it is left by naming another. */
function wantedDefault(row: BackendRow, wanted: boolean | undefined): boolean {
  if (wanted === true && !row.is_default) requireFitForDefault(row.type);
  if (wanted !== false || !row.is_default) return wanted ?? row.is_default;
  throw new AppError('state_conflict', 'This is the default backend: make another one the default instead.');
}

/** Whether a backend that holds something finds it at its new place: that bears its marker. */
async function carriesOn(needs: ChangeNeeds, row: BackendRow, { config, secrets }: ParsedConfig): Promise<boolean> {
  const { replicas, uploads } = await query(() => holdingsOf(needs.db, row.id));
  return replicas + uploads > 0 && needs.backends.isMarkedAt(row, config, secrets);
}

async function requireNothingHeld(trx: Trx, backendId: string): Promise<void> {
  const { replicas, uploads } = await holdingsOf(trx, backendId);
  if (replicas + uploads === 0) return;
  throw new AppError(
    'backend_in_use',
    'The backend holds content, and the new place does not bear its identity marker: move the content there first.',
    { members: { count: replicas + uploads } },
  );
}

async function applyUpdate(
  trx: Trx,
  row: BackendRow,
  { name, isDefault, parsed, marked }: { name: string; isDefault: boolean; parsed: ParsedConfig; marked: boolean },
): Promise<void> {
  const newSecrets = Object.keys(parsed.secrets).length > 0;
  const config: JsonObject = parsed.config;
  const kept = name === row.name && isDefault === row.is_default;
  if (!newSecrets && kept && JSON.stringify(config) === JSON.stringify(row.config)) return;
  await trx
    .updateTable('registry.backends')
    .set({
      name,
      is_default: isDefault,
      config,
      marked,
      ...(newSecrets ? { secrets_version: sql`secrets_version + 1` } : {}),
      version: sql`version + 1`,
      updated_at: sql`now()`,
    })
    .where('id', '=', row.id)
    .execute();
  await tellOfChange(trx, row.id);
}
