import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import { hostAndPort } from './host-and-port.ts';
import type { Random } from './random.ts';

/** How many bytes of requests a connection carries before it is cut; null lets it be. */
export type CutPlan = () => number | null;

/** A TCP proxy on loopback that cuts connections in the middle of what they send. */
export class CuttingProxy {
  readonly url: string;
  /** How many connections it has cut so far. */
  cuts = 0;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(server: Server, url: string) {
    this.#server = server;
    this.url = url;
  }

  static async start(target: string, plan: CutPlan): Promise<CuttingProxy> {
    const server = createServer();
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const address = server.address();
    if (typeof address !== 'object' || !address) throw new Error('no port');
    const proxy = new CuttingProxy(server, `http://127.0.0.1:${address.port}`);
    server.on('connection', (client) => proxy.#carry(client, target, plan()));
    return proxy;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #carry(client: Socket, target: string, budget: number | null): void {
    const upstream = connect(hostAndPort(target));
    let left = budget ?? Number.POSITIVE_INFINITY;
    for (const socket of [client, upstream]) {
      this.#sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        this.#sockets.delete(socket);
        client.destroy();
        upstream.destroy();
      });
    }
    client.on('data', (piece: Buffer) => {
      if (left <= 0) return;
      const passed = piece.subarray(0, left);
      left -= passed.length;
      if (!upstream.write(passed)) {
        client.pause();
        upstream.once('drain', () => client.resume());
      }
      if (left > 0) return;
      this.cuts += 1;
      // What was passed on still arrives; the client sees a reset.
      upstream.end();
      client.resetAndDestroy();
    });
    upstream.pipe(client);
  }
}

/** Cuts a connection with some probability, after a random number of bytes up to `maxBytes`. */
export function randomCuts(random: Random, probability: number, maxBytes: number): CutPlan {
  return () => (random.chance(probability) ? random.integer(1, maxBytes) : null);
}
