import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import pg from 'pg';
import { freePort } from './free-ports.ts';

/** An empty database whose address answers only while it is said to. */
export interface LateDatabase {
  /** Where processes look for it. */
  url: string;
  /** The same database, always there. */
  directUrl: string;
  /** From now on connections are taken. */
  come(): Promise<void>;
  /** Cuts all connections; new ones are refused. */
  go(): Promise<void>;
  close(): Promise<void>;
}

/** Makes one on the server that the set-up of jest shares. */
export async function lateDatabase(): Promise<LateDatabase> {
  const shared = process.env['STOWAGE_TEST_POSTGRES_URL'];
  if (!shared) throw new Error('the set-up shares a PostgreSQL');
  const name = `test_${randomUUID().replaceAll('-', '')}`;
  await runOn(shared, `create database ${name}`);
  const direct = new URL(shared);
  direct.pathname = `/${name}`;
  const url = new URL(direct);
  url.host = `127.0.0.1:${await freePort()}`;
  const gate = new Gate(Number(url.port), direct);
  return {
    url: url.href,
    directUrl: direct.href,
    come: () => gate.open(),
    go: () => gate.shut(),
    close: async () => {
      await gate.shut();
      await runOn(shared, `drop database if exists ${name} with (force)`);
    },
  };
}

/** A port of loopback that passes connections on to a server while it is open, and refuses them while it is shut. */
class Gate {
  readonly #port: number;
  readonly #target: URL;
  readonly #sockets = new Set<Socket>();
  #server: Server | null = null;

  constructor(port: number, target: URL) {
    this.#port = port;
    this.#target = target;
  }

  async open(): Promise<void> {
    if (this.#server) return;
    this.#server = createServer((client) => this.#carry(client));
    await once(this.#server.listen(this.#port, '127.0.0.1'), 'listening');
  }

  async shut(): Promise<void> {
    const server = this.#server;
    if (!server) return;
    this.#server = null;
    const closed = once(server.close(), 'close');
    for (const socket of this.#sockets) socket.destroy();
    await closed;
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
    client.pipe(upstream).pipe(client);
  }
}

async function runOn(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(statement).finally(() => client.end());
}
