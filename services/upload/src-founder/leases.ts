import { sql } from 'kysely';
import type { Kysely } from 'kysely';
import type { NotificationListener } from '@stowage/common/database/notification-listener';
import { query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import type { Logger } from '@stowage/common/runtime/logger';
import type { UploadSettings } from './settings.ts';
import type { Tables } from './tables.ts';

const releaseChannel = 'stowage_upload_release';
const pollMs = 50;

/** The sole right to write to one upload, across all processes. */
export interface Lease {
  /** Rises with every lease of any upload; backend-registry refuses a lower one. */
  fence: bigint;
  /** Aborted when another writer asks for the upload, or the lease was lost. */
  signal: AbortSignal;
  /** Gives it back, touches the upload's expiry in the same statement, and tells the new one. */
  release(): Promise<Date | null>;
}

/**
 * Lease rows in PostgreSQL: a newer writer asks the holder, wherever it runs, to stop; a dead holder's lease runs out.
 * No connection is held while bytes flow.
 */
export class Leases {
  readonly #db: Kysely<Tables>;
  readonly #settings: UploadSettings;
  readonly #logger: Logger;
  readonly #held = new Map<string, AbortController>();

  constructor(db: Kysely<Tables>, settings: UploadSettings, notifications: NotificationListener, logger: Logger) {
    this.#db = db;
    this.#settings = settings;
    this.#logger = logger;
    notifications.subscribe(releaseChannel, (uploadId) => {
      if (uploadId !== null) this.#held.get(uploadId)?.abort();
    });
  }

  /** Takes the lease, waiting up to the setting for the holder to stop. Throws `locked`. */
  async take(uploadId: string, signal: AbortSignal): Promise<Lease> {
    const deadline = Date.now() + this.#settings.leaseWaitMs;
    let asked = false;
    for (;;) {
      const fence = await this.#tryTake(uploadId);
      if (fence !== null) return this.#hold(uploadId, fence);
      if (Date.now() > deadline || signal.aborted) throw lockedError();
      if (!asked) await this.#askHolder(uploadId);
      asked = true;
      await new Promise((resolve) => setTimeout(resolve, pollMs));
    }
  }

  async #tryTake(uploadId: string): Promise<bigint | null> {
    const { rows } = await query(() =>
      sql<{ fence: string }>`
        insert into upload.leases as l (upload_id, fence, expires_at)
        values (${uploadId}, nextval('upload.fences'), now() + ${this.#settings.leaseMs} * interval '1 ms')
        on conflict (upload_id) do update set fence = excluded.fence, expires_at = excluded.expires_at
        where l.expires_at < now()
        returning fence`.execute(this.#db),
    );
    return rows[0] ? BigInt(rows[0].fence) : null;
  }

  async #askHolder(uploadId: string): Promise<void> {
    this.#held.get(uploadId)?.abort();
    await query(() => sql`select pg_notify(${releaseChannel}, ${uploadId})`.execute(this.#db));
  }

  #hold(uploadId: string, fence: bigint): Lease {
    const stop = new AbortController();
    this.#held.set(uploadId, stop);
    let renewedAt = Date.now();
    const renewal = setInterval(() => {
      // A renewal that can't be written in time is a lost lease: another may write by then.
      if (Date.now() - renewedAt > this.#settings.leaseMs) stop.abort();
      this.#renew(uploadId, fence).then(
        (held) => {
          if (held) renewedAt = Date.now();
          else stop.abort();
        },
        (error: unknown) => this.#logger.warn({ err: error, upload_id: uploadId }, 'A lease was not renewed.'),
      );
    }, this.#settings.leaseMs / 3);
    return {
      fence,
      signal: stop.signal,
      release: async () => {
        clearInterval(renewal);
        if (this.#held.get(uploadId) === stop) this.#held.delete(uploadId);
        return this.#release(uploadId, fence);
      },
    };
  }

  async #renew(uploadId: string, fence: bigint): Promise<boolean> {
    const { numAffectedRows } = await query(() =>
      sql`update upload.leases set expires_at = now() + ${this.#settings.leaseMs} * interval '1 ms'
        where upload_id = ${uploadId} and fence = ${fence}`.execute(this.#db),
    );
    return numAffectedRows === 1n;
  }

  async #release(uploadId: string, fence: bigint): Promise<Date | null> {
    const { rows } = await query(() =>
      sql<{ expires_at: Date }>`
        with released as (delete from upload.leases where upload_id = ${uploadId} and fence = ${fence})
        update upload.uploads set expires_at = now() + ${this.#settings.expiryMs} * interval '1 ms'
        where id = ${uploadId} and state in ('open', 'finalizing') returning expires_at`.execute(this.#db),
    );
    return rows[0]?.expires_at ?? null;
  }
}

function lockedError(): AppError {
  return new AppError('locked', 'Another request writes to this upload just now: try again.', { members: { retry_after: 1 } });
}
