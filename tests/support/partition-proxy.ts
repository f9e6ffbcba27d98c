import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';

/** What is lost between two processes: what the one asks, what the other answers, or all of it. */
export type Lost = 'requests' | 'answers' | 'both';

/**
 * A TCP proxy that stands for the network between two processes. While something is lost no end learns of it, not even
 * that the other has closed. A connection that was there at the time carries nothing ever again, as it would for as long
 * as TCP waits before it tries again; one that is opened meanwhile comes about when it heals.
 */
export class PartitionProxy {
  readonly port: number;
  readonly #server: Server;
  readonly #target: { host: string; port: number };
  readonly #pairs = new Set<Pair>();
  readonly #waiting: (() => void)[] = [];
  #lost: Lost | null = null;

  private constructor(server: Server, target: { host: string; port: number }) {
    this.#server = server;
    this.#target = target;
    this.port = (server.address() as AddressInfo).port;
    server.on('connection', (client) => this.#carry(client));
  }

  /** `target` is like `host:port`. */
  static async start(target: string): Promise<PartitionProxy> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const [host = '', port] = target.split(':');
    return new PartitionProxy(server, { host, port: Number(port) });
  }

  /** Where it listens, as `host:port`. */
  get address(): string {
    return `127.0.0.1:${this.port}`;
  }

  /** From now on that is lost; null heals it. */
  lose(lost: Lost | null): void {
    this.#lost = lost;
    if (lost !== null) for (const pair of this.#pairs) pair.lose(lost);
    else for (const carry of this.#waiting.splice(0)) carry();
  }

  async close(): Promise<void> {
    this.lose(null);
    for (const pair of this.#pairs) pair.cut();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #carry(client: Socket): void {
    if (this.#lost !== null) {
      client.pause().on('error', () => undefined);
      this.#waiting.push(() => this.#carry(client));
      return;
    }
    if (client.destroyed) return;
    const pair = new Pair(client, connect(this.#target));
    this.#pairs.add(pair);
    void pair.closed.then(() => this.#pairs.delete(pair));
  }
}

class Pair {
  readonly closed: Promise<void>;
  readonly #client: Socket;
  readonly #upstream: Socket;
  readonly #lost = { requests: false, answers: false };

  constructor(client: Socket, upstream: Socket) {
    this.#client = client;
    this.#upstream = upstream;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.closed = promise;
    for (const socket of [client, upstream]) socket.on('error', () => undefined);
    client.on('data', (piece) => upstream.write(piece));
    upstream.on('data', (piece) => client.write(piece));
    client.resume();
    client.on('close', () => this.#tell('requests', upstream));
    upstream.on('close', () => this.#tell('answers', client));
    void Promise.all([once(client, 'close'), once(upstream, 'close')]).then(() => resolve());
  }

  lose(lost: Lost): void {
    if (lost !== 'answers') this.#stop('requests', this.#client);
    if (lost !== 'requests') this.#stop('answers', this.#upstream);
  }

  cut(): void {
    this.#client.destroy();
    this.#upstream.destroy();
  }

  #stop(way: 'requests' | 'answers', source: Socket): void {
    this.#lost[way] = true;
    source.pause();
  }

  /** An end that closes is told to the other, unless that is lost too. */
  #tell(way: 'requests' | 'answers', other: Socket): void {
    if (!this.#lost[way]) other.destroy();
  }
}
