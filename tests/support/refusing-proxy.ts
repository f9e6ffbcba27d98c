import { once } from 'node:events';
import { createServer, request } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** What is answered to every request that would change something. */
export interface Refusal {
  status: number;
  /** What S3 calls it. */
  code: string;
}

const changing = new Set(['PUT', 'POST', 'DELETE', 'MKCOL', 'MOVE', 'COPY', 'PROPPATCH']);

/** An HTTP proxy on loopback in front of a store, which can take from it the right, or the room, to write. */
export class RefusingProxy {
  readonly url: string;
  refusal: Refusal | null = null;
  readonly #server: Server;
  readonly #target: URL;

  private constructor(server: Server, target: URL) {
    this.#server = server;
    this.#target = target;
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    server.on('request', (asked: IncomingMessage, answer: ServerResponse) => this.#pass(asked, answer));
  }

  static async start(target: string): Promise<RefusingProxy> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new RefusingProxy(server, new URL(target));
  }

  async close(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }

  #pass(asked: IncomingMessage, answer: ServerResponse): void {
    const { method = 'GET', url = '/', headers } = asked;
    if (this.refusal && changing.has(method)) {
      const { status, code } = this.refusal;
      asked.resume().once('end', () => answer.writeHead(status).end(`<Error><Code>${code}</Code></Error>`));
      return;
    }
    const { hostname, port } = this.#target;
    const passed = request({ hostname, port, method, path: url, headers }, (answered) => {
      answer.writeHead(answered.statusCode ?? 500, answered.rawHeaders);
      answered.pipe(answer);
    });
    passed.on('error', () => answer.destroy());
    answer.on('close', () => passed.destroy());
    asked.pipe(passed);
  }
}
