import { setTimeout as sleep } from 'node:timers/promises';
import type { NotificationListener } from '@stowage/common/database/notification-listener';
import { query } from '@stowage/common/database/transaction';
import { AppError } from '@stowage/common/errors';
import type { Logger } from '@stowage/common/runtime/logger';
import { sql } from 'kysely';
import type { Db } from './parts.ts';

/** The right to write to one upload, for as long as its signal is not aborted. */
export interface UploadLease {
  uploadId: string;
  /** Higher than that of every lease before. */
  fence: bigint;
  /** Aborted when a newer writer asks for the upload, or when the lease is lost. */
  signal: AbortSignal;
}

interface Holder {
  /** Where the writer stands in the order of arrival. */
  ticket: bigint;
  abort: AbortController;
  renewal: NodeJS.Timeout;
}

interface Options {
  db: Db;
  notifications: NotificationListener;
  /** How long a writer waits for a lease. */
  waitMs: number;
  leaseMs: number;
  logger: Logger;
}

const channel = 'stowage_upload_release';
const pollMs = { first: 10, last: 200 };
/** A request to stop is repeated every so many polls, as a notification may be lost. */
const pollsPerAsk = 4;

/** Leases on uploads, across all processes: a newer writer stops an older one, and the order of arrival decides. */
export class UploadLeases {
  readonly #options: Options;
  readonly #held = new Map<string, Holder>();

  constructor(options: Options) {
    this.#options = options;
  }

  /** Begins to hear other processes. */
  start(): void {
    this.#options.notifications.subscribe(channel, (payload) => {
      const [uploadId, ticket] = payload?.split('/') ?? [];
      if (uploadId && ticket && /^\d+$/.test(ticket)) this.#stopOlder(uploadId, BigInt(ticket));
    });
  }

  stop(): void {
    this.#options.notifications.unsubscribe(channel);
  }

  /** Takes the lease; asks who holds it to stop. Throws `locked` where it does not get free in time. */
  async take(uploadId: string, signal: AbortSignal): Promise<UploadLease> {
    const until = performance.now() + this.#options.waitMs;
    let ticket: bigint | null = null;
    for (let poll = 0; ; poll += 1) {
      const { number, taken } = await this.#tryTake(uploadId);
      ticket ??= number;
      if (taken) return this.#hold(uploadId, ticket, number);
      const pauseMs = Math.min(pollMs.first * 2 ** poll, pollMs.last, until - performance.now());
      if (pauseMs <= 0 || signal.aborted) throw locked();
      if (poll % pollsPerAsk === 0) await this.#askToStop(uploadId, ticket);
      await sleep(pauseMs);
    }
  }

  /**
   * Gives a lease back and lets the upload live `liveMs` longer, in one statement. Gives when it expires; null where it
   * was ended meanwhile.
   */
  async release(lease: UploadLease, liveMs: number): Promise<Date | null> {
    this.#drop(lease);
    const { rows } = await query(() =>
      sql<{ expires_at: Date }>`
        with released as (
          delete from upload.leases where upload_id = ${lease.uploadId} and fence = ${lease.fence}
        )
        update upload.uploads
        set expires_at = case when state = 'open' then now() + ${liveMs} * interval '1 ms' else expires_at end
        where id = ${lease.uploadId} and state in ('open', 'finalizing', 'finalized')
        returning expires_at`.execute(this.#options.db),
    );
    return rows[0]?.expires_at ?? null;
  }

  /** Asks whoever writes to an upload, in whichever process, to stop. */
  async stopWriter(uploadId: string): Promise<void> {
    const { rows } = await query(() =>
      sql<{ ticket: string }>`select nextval('upload.fences') as ticket`.execute(this.#options.db),
    );
    for (const { ticket } of rows) await this.#askToStop(uploadId, BigInt(ticket));
  }

  async #tryTake(uploadId: string): Promise<{ number: bigint; taken: boolean }> {
    const { rows } = await query(() =>
      sql<{ number: string; taken: boolean }>`
        with next as materialized (
          select nextval('upload.fences') as number
        ), taken as (
          insert into upload.leases as held (upload_id, fence, expires_at)
          select ${uploadId}::uuid, number, now() + ${this.#options.leaseMs} * interval '1 ms' from next
          on conflict (upload_id) do update set fence = excluded.fence, expires_at = excluded.expires_at
            where held.expires_at <= now()
          returning fence
        )
        select number, exists (select from taken) as taken from next`.execute(this.#options.db),
    );
    const row = rows[0];
    if (!row) throw new Error('a select without a source gave no row');
    return { number: BigInt(row.number), taken: row.taken };
  }

  async #askToStop(uploadId: string, ticket: bigint): Promise<void> {
    if (this.#stopOlder(uploadId, ticket)) return;
    await query(() => sql`select pg_notify(${channel}, ${`${uploadId}/${ticket}`})`.execute(this.#options.db));
  }

  /** True where the writer is in this process. One that came later than who asks goes on. */
  #stopOlder(uploadId: string, ticket: bigint): boolean {
    const holder = this.#held.get(uploadId);
    if (holder && holder.ticket < ticket) holder.abort.abort(locked());
    return holder !== undefined;
  }

  #hold(uploadId: string, ticket: bigint, fence: bigint): UploadLease {
    const abort = new AbortController();
    const lease = { uploadId, fence, signal: abort.signal };
    // A holder whose lease ran out may still be at work here.
    this.#held.get(uploadId)?.abort.abort(locked());
    this.#held.set(uploadId, { ticket, abort, renewal: this.#renew(lease, abort) });
    return lease;
  }

  /** Renews every third of the lease's time; aborts when another has it, or when it ran out unrenewed. */
  #renew(lease: UploadLease, abort: AbortController): NodeJS.Timeout {
    const { db, leaseMs, logger } = this.#options;
    let heldUntil = performance.now() + leaseMs;
    const renewOnce = async (): Promise<void> => {
      const asked = performance.now();
      try {
        const { numAffectedRows } = await sql`
          update upload.leases set expires_at = now() + ${leaseMs} * interval '1 ms'
          where upload_id = ${lease.uploadId} and fence = ${lease.fence}`.execute(db);
        if (numAffectedRows === 1n) heldUntil = asked + leaseMs;
        else abort.abort(locked());
      } catch (error) {
        logger.warn({ err: error, upload_id: lease.uploadId }, 'The lease of an upload was not renewed.');
        if (performance.now() >= heldUntil) abort.abort(locked());
      }
    };
    const renewal = setInterval(() => void renewOnce(), leaseMs / 3);
    abort.signal.addEventListener('abort', () => clearInterval(renewal), { once: true });
    return renewal;
  }

  #drop(lease: UploadLease): void {
    const holder = this.#held.get(lease.uploadId);
    if (holder?.abort.signal !== lease.signal) return;
    clearInterval(holder.renewal);
    this.#held.delete(lease.uploadId);
  }
}

/** Another request has the upload, or wants it. */
export function locked(): AppError {
  return new AppError('locked', 'Another request writes to this upload just now: ask for the offset and try again.', {
    members: { retry_after: 1 },
  });
}
