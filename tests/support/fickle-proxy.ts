import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';

/** What a dependency does just now: answers, cuts and refuses connections, or takes them and says nothing. */
export type Mood = 'answers' | 'refuses' | 'is silent';

/** A TCP proxy in front of something that a test wants to be down, without touching the thing itself. */
export class FickleProxy {
  readonly port: number;
  readonly #target: URL;
  readonly #server: Server;
  readonly #pairs = new Set<[client: Socket, upstream: Socket]>();
  #mood: Mood = 'answers';

  private constructor(server: Server, target: URL) {
    this.#server = server;
    this.#target = target;
    this.port = (server.address() as AddressInfo).port;
    server.on('connection', (client) => this.#carry(client));
  }

  /** `target` is any URL with a host and a port. */
  static async start(target: string): Promise<FickleProxy> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new FickleProxy(server, new URL(target));
  }

  /** The target's URL, by way of this proxy. */
  get url(): string {
    const url = new URL(this.#target);
    url.hostname = '127.0.0.1';
    url.port = String(this.port);
    return url.href;
  }

  turn(mood: Mood): void {
    this.#mood = mood;
    for (const pair of this.#pairs) this.#settle(pair);
  }

  async close(): Promise<void> {
    this.turn('refuses');
    this.#server.close();
    await once(this.#server, 'close');
  }

  #carry(client: Socket): void {
    const upstream = connect({ host: this.#target.hostname, port: Number(this.#target.port) });
    const pair: [Socket, Socket] = [client, upstream];
    this.#pairs.add(pair);
    for (const socket of pair) {
      socket.on('error', () => undefined);
      socket.on('close', () => {
        this.#pairs.delete(pair);
        for (const other of pair) other.destroy();
      });
    }
    client.on('data', (piece) => upstream.write(piece));
    upstream.on('data', (piece) => client.write(piece));
    this.#settle(pair);
  }

  #settle(pair: [Socket, Socket]): void {
    for (const socket of pair) {
      if (this.#mood === 'refuses') socket.resetAndDestroy();
      else if (this.#mood === 'is silent') socket.pause();
      else socket.resume();
    }
  }
}
