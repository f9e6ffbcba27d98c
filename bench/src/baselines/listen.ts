import type { Server } from 'node:http';

/** Listens on a free port of loopback, tells the parent which, and ends with the parent. */
export function listenAndTell(server: Server): void {
  // Long uploads on a slow machine are no attack.
  server.requestTimeout = 0;
  server.listen(0, '127.0.0.1', () => {
    const address = server.address();
    process.send?.({ port: typeof address === 'object' ? address?.port : null });
  });
  process.on('disconnect', () => process.exit(0));
}
