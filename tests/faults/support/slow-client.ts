import { connect } from 'node:net';

/** How a client is slow: what it sends at once, then piece by piece; whether it reads. */
export interface Slowness {
  head: string;
  piece: string;
  everyMs: number;
  reads: boolean;
}

/** A client that is slow until the other side ends the connection or `stop` is called. */
export interface SlowClient {
  /** The status of the first answer, or null. */
  status(): number | null;
  /** How long the other side let it be, or null while it still does. A client that does not read never knows. */
  lastedMs(): number | null;
  stop(): void;
}

export function beSlow(url: string, { head, piece, everyMs, reads }: Slowness): SlowClient {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port), noDelay: true });
  const begun = performance.now();
  let first = '';
  let ended: number | null = null;
  socket.on('error', () => undefined);
  socket.write(head);
  const timer = setInterval(() => {
    if (piece !== '' && socket.writable) socket.write(piece);
  }, everyMs);
  if (reads) socket.on('data', (bytes: Buffer) => (first ||= bytes.toString('latin1', 0, 20)));
  socket.once('close', () => {
    clearInterval(timer);
    ended = performance.now() - begun;
  });
  return {
    status: () => Number(/^HTTP\/1\.1 (\d{3})/.exec(first)?.[1] ?? '0') || null,
    lastedMs: () => ended,
    stop: () => {
      clearInterval(timer);
      socket.destroy();
    },
  };
}
