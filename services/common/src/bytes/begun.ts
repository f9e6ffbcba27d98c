import { once } from 'node:events';
import type { Readable } from 'node:stream';

/** The stream once its first bytes are there, or it ended with none; throws what it broke with before that. */
export async function begun<T extends Readable>(stream: T, signal: AbortSignal): Promise<T> {
  const stop = (): void => void stream.destroy(new Error('The reader went away.'));
  // Whoever reads on hears of what breaks it; when nobody does, it must not bring the process down.
  stream.on('error', () => undefined);
  signal.addEventListener('abort', stop, { once: true });
  try {
    if (signal.aborted) stop();
    if (stream.errored) throw stream.errored;
    if (stream.readableLength === 0 && !stream.readableEnded) await once(stream, 'readable');
    return stream;
  } finally {
    signal.removeEventListener('abort', stop);
  }
}
