import type { Kysely } from 'kysely';
import { inTransaction } from '@stowage/common/database/transaction';
import type { Tables } from '../tables.ts';
import type { KeyRing } from './key-ring.ts';
import { requireSameKeys, sealedOf, secretContext } from './secret-table.ts';

const pageSize = 100;

/**
 * Seals every secret anew that is not under the first key, page by page; afterwards the other keys can be taken away. May
 * be stopped and run again, beside a running service. Gives how many were sealed anew. Throws SealError, with nothing
 * changed in its page, for one that does not open.
 */
export async function resealSecrets(db: Kysely<Tables>, ring: KeyRing): Promise<number> {
  for (let resealed = 0; ;) {
    const count = await inTransaction(db, async (trx) => {
      await requireSameKeys(trx, ring);
      const rows = await trx
        .selectFrom('registry.backend_secrets')
        .selectAll()
        .where('key_id', '<>', ring.sealingId)
        .orderBy('backend_id')
        .orderBy('field')
        .limit(pageSize)
        .forUpdate()
        .execute();
      for (const row of rows) {
        const context = secretContext(row.backend_id, row.field);
        const { keyId, nonce, sealed } = ring.seal(ring.open(sealedOf(row), context), context);
        await trx
          .updateTable('registry.backend_secrets')
          .set({ key_id: keyId, nonce, sealed, sealed_at: new Date() })
          .where('backend_id', '=', row.backend_id)
          .where('field', '=', row.field)
          .execute();
      }
      return rows.length;
    });
    resealed += count;
    if (count < pageSize) return resealed;
  }
}
