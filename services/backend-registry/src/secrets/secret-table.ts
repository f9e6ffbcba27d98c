import type { Kysely, Selectable, Transaction } from 'kysely';
import { sql } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { unavailable } from '@stowage/common/errors';
import type { SecretKeyTable, Tables } from '../tables.ts';
import { SealError } from './key-ring.ts';
import type { KeyRing, Sealed } from './key-ring.ts';
import type { SecretRef } from './secret-ref.ts';

/** Values of secret fields by name. */
export type Secrets = Readonly<Record<string, string>>;

/** References to Kubernetes Secrets by the field that has its value there. */
export type SecretRefs = Readonly<Record<string, SecretRef>>;

const canaryWord = 'canary';

/** What a secret is bound to: in any other row it does not open. */
export function secretContext(backendId: string, field: string): string[] {
  return ['backend', backendId, field];
}

/**
 * Seals and writes secrets in the transaction that changes their backend. Throws `unavailable` where this process has
 * not the keys that others seal with: what it sealed, they could not open.
 */
export async function writeSecrets(
  trx: Transaction<Tables>,
  ring: KeyRing,
  backendId: string,
  secrets: Secrets,
): Promise<void> {
  const fields = Object.entries(secrets);
  if (fields.length === 0) return;
  await requireSameKeys(trx, ring);
  for (const [field, value] of fields) {
    const { keyId, nonce, sealed } = ring.seal(value, secretContext(backendId, field));
    const row = { key_id: keyId, nonce, sealed, ref_name: null, ref_key: null, sealed_at: sql<Date>`now()` };
    await trx
      .insertInto('registry.backend_secrets')
      .values({ backend_id: backendId, field, ...row })
      .onConflict((conflict) => conflict.columns(['backend_id', 'field']).doUpdateSet(row))
      .execute();
  }
}

/** Writes references in the transaction that changes their backend, each in the place of what its field had before. */
export async function writeReferences(trx: Transaction<Tables>, backendId: string, refs: SecretRefs): Promise<void> {
  for (const [field, { name, key }] of Object.entries(refs)) {
    const row = { key_id: null, nonce: null, sealed: null, ref_name: name, ref_key: key, sealed_at: sql<Date>`now()` };
    await trx
      .insertInto('registry.backend_secrets')
      .values({ backend_id: backendId, field, ...row })
      .onConflict((conflict) => conflict.columns(['backend_id', 'field']).doUpdateSet(row))
      .execute();
  }
}

/** Opens the sealed secrets of a backend, and gives its references. Throws `unavailable` for one that can't be opened. */
export async function readSecrets(
  db: Kysely<Tables>,
  ring: KeyRing,
  backendId: string,
): Promise<{ sealed: Secrets; refs: SecretRefs }> {
  const rows = await query(() =>
    db.selectFrom('registry.backend_secrets').selectAll().where('backend_id', '=', backendId).execute(),
  );
  const sealed: Record<string, string> = {};
  const refs: Record<string, SecretRef> = {};
  try {
    for (const row of rows) {
      const { field, ref_name: name, ref_key: key } = row;
      if (name !== null && key !== null) refs[field] = { name, key };
      else sealed[field] = ring.open(sealedOf(row), secretContext(backendId, field));
    }
  } catch (error) {
    if (!(error instanceof SealError)) throw error;
    throw unavailable('A secret of this backend can not be opened: is its key in STOWAGE_SECRET_KEYS?', error);
  }
  return { sealed, refs };
}

/** Throws SealError for a row that holds nothing sealed. */
export function sealedOf(row: { key_id: string | null; nonce: Buffer | null; sealed: Buffer | null }): Sealed {
  const { key_id: keyId, nonce, sealed } = row;
  if (keyId === null || nonce === null || sealed === null) throw new SealError('nothing is sealed there');
  return { keyId, nonce, sealed };
}

/** Throws SealError where the ring's key of this id is another one. */
export function openCanary(ring: KeyRing, row: Selectable<SecretKeyTable>): void {
  ring.open({ keyId: row.id, nonce: row.nonce, sealed: row.canary }, ['canary']);
}

/** Two processes that each made a key of their own must not both seal. */
export async function requireSameKeys(trx: Transaction<Tables>, ring: KeyRing): Promise<void> {
  // Locks out others that seal under another key, so that one of both sees what the other sealed.
  await sql`lock table registry.secret_keys in share row exclusive mode`.execute(trx);
  const { nonce, sealed } = ring.seal(canaryWord, ['canary']);
  await trx
    .insertInto('registry.secret_keys')
    .values({ id: ring.sealingId, nonce, canary: sealed })
    .onConflict((conflict) => conflict.doNothing())
    .execute();
  const own = await trx
    .selectFrom('registry.secret_keys')
    .selectAll()
    .where('id', '=', ring.sealingId)
    .executeTakeFirstOrThrow();
  const foreign = await trx
    .selectFrom('registry.backend_secrets')
    .select('key_id')
    .where('key_id', 'not in', ring.ids)
    .limit(1)
    .executeTakeFirst();
  try {
    openCanary(ring, own);
    if (foreign) throw new SealError(`secrets are sealed under "${foreign.key_id}", which is not here`);
  } catch (error) {
    if (!(error instanceof SealError)) throw error;
    throw unavailable('Secrets can not be sealed: this process has other keys than those in use.', error);
  }
}
