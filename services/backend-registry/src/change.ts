import { create } from '@bufbuild/protobuf';
import type { DescMessage, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import { sql } from 'kysely';
import type { Kysely, Transaction } from 'kysely';
import { violatedConstraint } from '@stowage/common/database/database-error';
import { inTransaction } from '@stowage/common/database/transaction';
import { AppError, unavailable } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import { idempotent } from '@stowage/common/jobs/idempotency';
import type { CallContext } from '@stowage/common/rpc/context';
import { BackendHealthSchema } from '@stowage/proto/stowage/backend_registry/v1/backend';
import type { Backend, VersionCondition } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { noBackend } from './backend-row.ts';
import { getBackend } from './backends.ts';
import { checkOverlap, realPlaces } from './config/check-place.ts';
import type { PlacedBackend, PlaceNeeds } from './config/check-place.ts';
import type { OpenBackends } from './open-backend.ts';
import type { KeyRing } from './secrets/key-ring.ts';
import type { ReferencedSecrets } from './secrets/secret-ref.ts';
import type { BackendRow, Tables } from './tables.ts';

export type Trx = Transaction<Tables>;

/** What the changes of backends are handed. */
export interface ChangeNeeds extends PlaceNeeds {
  backends: OpenBackends;
  /** Seals secrets. */
  keys: () => KeyRing;
  /** The Kubernetes Secrets that may be referred to. */
  references: ReferencedSecrets;
}

/** One transaction, under the client's idempotency key; `placed` is a backend whose place must be its own. */
export async function change<O extends DescMessage>(
  needs: ChangeNeeds,
  context: CallContext,
  output: O,
  placed: PlacedBackend | null,
  run: (trx: Trx) => Promise<MessageInitShape<O>>,
): Promise<MessageShape<O>> {
  const places = placed ? await realPlaces(needs.db, placed) : new Map<string, string>();
  try {
    return await inTransaction(needs.db, (trx) =>
      idempotent(trx, context, output, async () => {
        if (placed) await requireOwnPlace(trx, placed, places);
        return run(trx);
      }),
    );
  } catch (error) {
    if (violatedConstraint(error) !== 'backends_name_key') throw error;
    throw new AppError('name_conflict', 'Another backend has this name.', { cause: error });
  }
}

async function requireOwnPlace(trx: Trx, placed: PlacedBackend, places: Map<string, string>): Promise<void> {
  await sql`select pg_advisory_xact_lock(hashtext('stowage places of backends'))`.execute(trx);
  if (await checkOverlap(trx, placed, places)) return;
  throw unavailable('Another backend was made at the same moment: try again.', undefined, 1);
}

/** Locks a backend against changes and against new references to it. Throws `not_found`. */
export async function lockBackend(trx: Trx, id: string): Promise<BackendRow> {
  if (!isId(id)) return noBackend();
  const row = await trx.selectFrom('registry.backends').selectAll().where('id', '=', id).forUpdate().executeTakeFirst();
  return row ?? noBackend();
}

/** Throws `precondition_failed` where the client meant another version. */
export function requireVersion(row: BackendRow, wanted: VersionCondition | undefined): void {
  if (!wanted || wanted.versions.includes(BigInt(row.version))) return;
  throw new AppError('precondition_failed', `The backend is at version ${row.version} now.`, {
    members: { version: Number(row.version) },
  });
}

/** An answer with what checks showed since: the answer is kept for its key before the first check is done. */
export async function withHealth<A extends { backend?: Backend | undefined }>(
  db: Kysely<Tables>,
  answer: A,
): Promise<A> {
  const { backend } = answer;
  if (!backend) return answer;
  const now = await getBackend(db, backend.id).catch((error: unknown) => {
    if (error instanceof AppError && error.code === 'not_found') return null;
    throw error;
  });
  return now?.health ? { ...answer, backend: { ...backend, health: create(BackendHealthSchema, now.health) } } : answer;
}
