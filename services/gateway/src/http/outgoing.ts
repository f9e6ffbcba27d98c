import { free } from '@stowage/common/bytes/free';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';

/** Writes with back-pressure; the bytes are given away, and empty afterwards. Throws when `signal` is aborted. */
export async function write(response: ServerResponse, bytes: Buffer, signal: AbortSignal): Promise<void> {
  if (!response.write(bytes, () => free(bytes))) await once(response, 'drain', { signal });
}

/**
 * Resolves when all that was written has left the process, or the client is gone. Node takes a connection for idle as
 * soon as its answer was ended, and a server that stops cuts idle connections, whatever is still buffered.
 */
export async function allSent(response: ServerResponse, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  signal.addEventListener('abort', () => resolve(), { once: true });
  response.write(Buffer.alloc(0), () => resolve());
  await promise;
}
