import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';

/** How a server that means no good tells everybody what it was sent. */
export const echoes = [
  'code',
  'message',
  'text',
  'page',
  'redirect',
  'status line',
  'half',
  'reset',
  'no http',
] as const;
export type Echo = (typeof echoes)[number];

/** A server of backends that gives back whatever credentials it was sent, wherever an answer has room for them. */
export class EchoServer {
  readonly url: string;
  /** What it was sent: that it got secrets at all. */
  readonly heard: string[] = [];
  echo: Echo = 'code';
  readonly #server: Server;

  private constructor(server: Server, url: string) {
    this.#server = server;
    this.url = url;
  }

  static async start(): Promise<EchoServer> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    if (typeof address !== 'object' || !address) throw new Error('no port');
    const echoing = new EchoServer(server, `http://127.0.0.1:${address.port}`);
    server.on('request', (request, response) => echoing.#answer(request, response));
    return echoing;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    request.resume();
    const authorization = request.headers.authorization ?? '';
    const credential = /Credential=([^/]+)/.exec(authorization)?.[1] ?? plainOf(authorization);
    const all = `${request.method} ${request.url} ${JSON.stringify(request.headers)} ${plainOf(authorization)}`;
    this.heard.push(all);
    const xml = (code: string, message: string): void => {
      response.writeHead(403, { 'content-type': 'application/xml' });
      response.end(`<?xml version="1.0"?><Error><Code>${code}</Code><Message>${message}</Message></Error>`);
    };
    switch (this.echo) {
      case 'code':
        return xml(credential, all.replaceAll(/[<&]/g, ' '));
      case 'message':
        return xml('InternalError', all.replaceAll(/[<&]/g, ' '));
      case 'text':
        return void response.writeHead(500, { 'x-echo': authorization, 'www-authenticate': authorization }).end(all);
      case 'page':
        return void response.writeHead(200, { 'content-type': 'text/html' }).end(`<html>${all}`);
      case 'redirect':
        return void response
          .writeHead(307, { location: `http://a:${encodeURIComponent(credential)}@127.0.0.1:9/` })
          .end();
      case 'status line':
        return void response.writeHead(418, credential.replaceAll(/[^\x21-\x7e]/g, '')).end(all);
      case 'half':
        response.writeHead(207, { 'content-type': 'application/xml', 'content-length': '100000' });
        return void response.write(`<multistatus><href>${all}`, () => request.socket.destroy());
      case 'reset':
        return void request.socket.resetAndDestroy();
      case 'no http':
        return void request.socket.end(`HTTP/1.1 200 ${credential}\r\n${authorization}\r\nx y: ${all}\r\n\r\n`);
    }
  }
}

function plainOf(authorization: string): string {
  return authorization.startsWith('Basic ') ? Buffer.from(authorization.slice(6), 'base64').toString() : authorization;
}
