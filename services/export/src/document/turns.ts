import type pg from 'pg';
import { unavailable } from '@stowage/common/errors';

/** Each holds a connection for as long as its client takes; some are left for exports, plans and imports. */
const documentsAtOnce = 2;
const retrySeconds = 30;

const running = new WeakMap<pg.Pool, number>();

/** Reads a document where not too many are being read already. Throws `unavailable` where they are. */
export async function inTurn<R>(bulk: pg.Pool, read: () => Promise<R>): Promise<R> {
  const others = running.get(bulk) ?? 0;
  if (others >= documentsAtOnce) throw unavailable('Other documents are being read just now.', undefined, retrySeconds);
  running.set(bulk, others + 1);
  try {
    return await read();
  } finally {
    running.set(bulk, (running.get(bulk) ?? 1) - 1);
  }
}
