import { once } from 'node:events';
import { createServer, request as httpRequest } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** What the proxy itself serves. */
export interface Served {
  type: string;
  bytes: Buffer | string;
}

/** The name under which a browser reaches the system through the proxy. */
export const systemHost = 'stowage.test';

/** Whom Chromium asks of its own accord, whatever it is told; no file of a test names them. */
const askedByItself = /(^|\.)(google|googleapis|gstatic)\.com$/;

/**
 * The proxy of a browser: it adds the token to what goes to the system, serves the test's own pages, and answers all else
 * itself, so that whatever a file makes the browser send is seen and leaves nowhere.
 */
export class BrowserProxy {
  readonly url: string;
  /** The address of each request that is neither for the system nor for a page of the test's. */
  readonly strays: string[] = [];
  readonly #server: Server;
  readonly #system: string;
  readonly #token: string;
  readonly #pages: Map<string, () => Served>;

  private constructor(server: Server, system: { url: string; token: string }) {
    this.#server = server;
    this.#system = system.url;
    this.#token = system.token;
    this.#pages = new Map();
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    server.on('request', (request: IncomingMessage, response: ServerResponse) => this.#handle(request, response));
    server.on('connect', ({ url = '' }: IncomingMessage, socket) => {
      this.#note(`https://${url}`);
      socket.destroy();
    });
  }

  static async start(system: { url: string; token: string }): Promise<BrowserProxy> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new BrowserProxy(server, system);
  }

  /** Serves a page of the test's, with no header that protects anything. */
  serve(url: string, page: () => Served): void {
    this.#pages.set(url, page);
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #handle(request: IncomingMessage, response: ServerResponse): void {
    const address = request.url ?? '';
    const page = this.#pages.get(address);
    if (page) {
      const { type, bytes } = page();
      response.writeHead(200, type === '' ? {} : { 'content-type': type }).end(bytes);
    } else if (URL.canParse(address) && new URL(address).hostname === systemHost) {
      this.#forward(request, response, new URL(address));
    } else {
      this.#note(address);
      response.writeHead(200, { 'content-type': 'text/plain', 'access-control-allow-origin': '*' }).end('seen');
    }
  }

  #note(address: string): void {
    const { hostname, pathname } = new URL(address, 'http://relative.test');
    if (!askedByItself.test(hostname) && pathname !== '/favicon.ico') this.strays.push(address);
  }

  #forward(request: IncomingMessage, response: ServerResponse, { pathname, search }: URL): void {
    const headers = { ...request.headers, authorization: `Bearer ${this.#token}` };
    const { method } = request;
    const call = httpRequest(`${this.#system}${pathname}${search}`, { method, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.rawHeaders);
      answer.pipe(response);
      answer.on('error', () => response.destroy());
    });
    call.on('error', () => response.destroy());
    response.on('close', () => call.destroy());
    request.pipe(call);
  }
}
