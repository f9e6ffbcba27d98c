import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

const turnMs = 100;

/** A TCP proxy on loopback that lets each connection carry so many bytes a second in each direction. */
export class SlowProxy {
  readonly url: string;
  /** Null for no limit. */
  bytesPerSecond: number | null = null;
  readonly #server: Server;
  readonly #target: URL;
  readonly #sockets = new Set<Socket>();

  private constructor(server: Server, target: URL) {
    this.#server = server;
    this.#target = target;
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    server.on('connection', (client) => this.#carry(client));
  }

  /** `target` is any URL with a host and a port. */
  static async start(target: string): Promise<SlowProxy> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new SlowProxy(server, new URL(target));
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #carry(client: Socket): void {
    const upstream = connect({ host: this.#target.hostname, port: Number(this.#target.port) });
    for (const socket of [client, upstream]) {
      this.#sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        this.#sockets.delete(socket);
        client.destroy();
        upstream.destroy();
      });
    }
    void this.#pass(client, upstream);
    void this.#pass(upstream, client);
  }

  async #pass(from: Socket, to: Socket): Promise<void> {
    const pieces: AsyncIterable<Buffer> = from;
    try {
      for await (const piece of pieces) await this.#send(piece, to);
      to.end();
    } catch {
      to.destroy();
    }
  }

  async #send(piece: Buffer, to: Socket): Promise<void> {
    for (let at = 0; at < piece.length && !to.destroyed;) {
      const limit = this.bytesPerSecond;
      const part = piece.subarray(at, at + (limit === null ? piece.length : Math.ceil((limit * turnMs) / 1_000)));
      at += part.length;
      if (!to.write(part)) await once(to, 'drain');
      if (limit !== null) await sleep(turnMs);
    }
  }
}
