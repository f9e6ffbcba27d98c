import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Lifecycle } from './lifecycle.ts';
import { version } from './version.ts';

/** Answers one request of the metrics scraper. */
export type MetricsHandler = (request: IncomingMessage, response: ServerResponse) => void;

/**
 * The management port: probes of this process alone, so that a sick database or neighbour never gets pods killed,
 * and metrics where telemetry is on.
 */
export class ManagementServer {
  readonly #server: Server;

  constructor(lifecycle: Lifecycle, metrics: MetricsHandler | null) {
    this.#server = createServer((request, response) => {
      if (request.url === '/api/system/health') {
        answer(response, 200, { status: 'ok', version, uptime_seconds: Math.floor(process.uptime()) });
      } else if (request.url === '/api/system/ready') {
        const ready = lifecycle.state === 'ready';
        const { detail = null, blocked = false } = lifecycle.waitsFor ?? {};
        const check = { name: 'process', status: blocked ? 'blocked' : lifecycle.state, latency_ms: 0, detail };
        answer(response, ready ? 200 : 503, { status: ready ? 'ready' : 'unavailable', checks: [check] });
      } else if (request.url === '/metrics' && metrics) {
        metrics(request, response);
      } else {
        answer(response, 404, { status: 'not_found' });
      }
    });
  }

  /** Listens; gives the port. */
  async listen(host: string, port: number): Promise<number> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#server.once('error', reject);
    this.#server.listen(port, host, resolve);
    await promise;
    return (this.#server.address() as AddressInfo).port;
  }

  async close(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }
}

function answer(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json', 'cache-control': 'no-store' });
  response.end(JSON.stringify(body));
}
