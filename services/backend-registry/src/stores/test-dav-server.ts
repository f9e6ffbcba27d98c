import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import type { WebdavConfig } from './webdav-store.ts';

/** Answers a request in a way of its own; false: answer it as it should be. */
export type Misbehaviour = (request: IncomingMessage, response: ServerResponse) => boolean;

/** A small WebDAV server in memory that can be made to lie, stall and break. Its root is at `/dav/`. */
export class DavServer {
  /** By decoded path; a folder is null and its path ends without a slash. */
  readonly things = new Map<string, Buffer | null>([['/dav', null]]);
  readonly requests: string[] = [];
  readonly sockets = new Set<Socket>();
  misbehaviour: Misbehaviour = () => false;
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => {
      this.requests.push(`${request.method ?? ''} ${request.url ?? ''}`);
      request.on('error', () => undefined);
      if (this.misbehaviour(request, response)) return;
      this.#answer(request, response).catch(() => response.destroy());
    });
    this.#server.on('connection', (socket) => {
      this.sockets.add(socket);
      socket.once('close', () => this.sockets.delete(socket));
    });
  }

  static async start(): Promise<DavServer> {
    const server = new DavServer();
    await new Promise<void>((resolve) => server.#server.listen(0, '127.0.0.1', resolve));
    return server;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get config(): WebdavConfig {
    const url = `http://127.0.0.1:${this.port}/dav`;
    return { url, rootPath: '/root', username: 'someone', password: 'a-secret-word' };
  }

  /** What lies in the place of blobs, and what in that of temporary objects. */
  get visible(): string[] {
    return this.#filesBelow('/dav/root/blobs/');
  }

  get temporary(): string[] {
    return this.#filesBelow('/dav/root/tmp/');
  }

  stop(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  #filesBelow(prefix: string): string[] {
    return [...this.things].filter(([path, thing]) => thing && path.startsWith(prefix)).map(([path]) => path);
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = pathIn(request.url ?? '');
    const body = await buffer(request);
    const thing = this.things.get(path);
    const status = (code: number): void => void response.writeHead(code).end();
    if (request.method === 'PUT') return status(this.#put(path, body));
    if (request.method === 'MKCOL') {
      if (thing !== undefined) return status(405);
      return status(this.#put(path, null));
    }
    if (thing === undefined) return status(404);
    if (request.method === 'MOVE') return status(this.#move(path, request));
    if (request.method === 'DELETE') return status(this.things.delete(path) ? 204 : 404);
    if (request.method === 'PROPFIND') return this.#propfind(path, request.headers['depth'] === '1', response);
    if (request.method === 'GET' && thing) return sendRange(thing, request, response);
    status(405);
  }

  #put(path: string, thing: Buffer | null): number {
    if (this.things.get(path.slice(0, path.lastIndexOf('/'))) !== null) return 409;
    this.things.set(path, thing);
    return 201;
  }

  #move(from: string, { headers }: IncomingMessage): number {
    const to = pathIn(new URL(String(headers['destination'])).pathname);
    if (headers['overwrite'] === 'F' && this.things.has(to)) return 412;
    const status = this.#put(to, this.things.get(from) ?? null);
    if (status === 201) this.things.delete(from);
    return status;
  }

  #propfind(path: string, deep: boolean, response: ServerResponse): void {
    const below = [...this.things.keys()].filter((other) => other.slice(0, other.lastIndexOf('/')) === path);
    const entries = [path, ...(deep ? below : [])].map((other) => entryXml(other, this.things.get(other)));
    response.writeHead(207).end(multistatus(...entries));
  }
}

/** A whole multistatus of these entries. */
export function multistatus(...entries: string[]): string {
  return `<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">${entries.join('')}</D:multistatus>`;
}

/** One entry as servers write it. A folder is null. */
export function entryXml(path: string, thing: { length: number } | null | undefined, href = encodeURI(path)): string {
  const what = thing
    ? `<D:resourcetype/><D:getcontentlength>${thing.length}</D:getcontentlength>`
    : '<D:resourcetype><D:collection/></D:resourcetype>';
  const changed = '<D:getlastmodified>Sat, 21 Nov 2026 10:47:16 GMT</D:getlastmodified>';
  const found = `<D:propstat><D:prop>${what}${changed}</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>`;
  return `<D:response><D:href>${href}</D:href>${found}</D:response>`;
}

function pathIn(url: string): string {
  return decodeURIComponent(url).replace(/\/$/, '');
}

function sendRange(content: Buffer, { headers }: IncomingMessage, response: ServerResponse): void {
  const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(headers.range ?? '') ?? [];
  if (first === undefined) return void response.writeHead(200, { 'content-length': content.length }).end(content);
  if (Number(first) >= content.length) return void response.writeHead(416).end();
  const part = content.subarray(Number(first), Number(last) + 1);
  const range = `bytes ${first}-${Number(first) + part.length - 1}/${content.length}`;
  response.writeHead(206, { 'content-range': range, 'content-length': part.length }).end(part);
}
