import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import { gunzipSync } from 'node:zlib';

/** A span as a collector got it. */
export interface Span {
  service: string;
  name: string;
  traceId: string;
  spanId: string;
  parentSpanId: string;
  kind: 'internal' | 'server' | 'client' | 'producer' | 'consumer' | 'unspecified';
  attributes: Record<string, unknown>;
  /** The traces that it is linked to. */
  links: string[];
}

const kinds = ['unspecified', 'internal', 'server', 'client', 'producer', 'consumer'] as const;

/** A collector that speaks OTLP over HTTP with JSON and keeps what it gets. */
export class OtlpReceiver {
  readonly url: string;
  readonly spans: Span[] = [];
  /** All bodies, as they came. */
  readonly bodies: string[] = [];
  readonly #server: Server;

  private constructor(server: Server, url: string) {
    this.#server = server;
    this.url = url;
  }

  static async start(): Promise<OtlpReceiver> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    if (typeof address !== 'object' || !address) throw new Error('no port');
    const receiver = new OtlpReceiver(server, `http://127.0.0.1:${address.port}`);
    server.on('request', (request, response) => {
      const pieces: Buffer[] = [];
      request.on('data', (piece: Buffer) => pieces.push(piece));
      request.once('end', () => {
        const body = Buffer.concat(pieces);
        receiver.#take((request.headers['content-encoding'] === 'gzip' ? gunzipSync(body) : body).toString());
        response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
      });
    });
    return receiver;
  }

  /** The spans of one trace. */
  trace(traceId: string): Span[] {
    return this.spans.filter((span) => span.traceId === traceId);
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #take(body: string): void {
    this.bodies.push(body);
    const { resourceSpans = [] }: Export = JSON.parse(body);
    for (const { resource, scopeSpans } of resourceSpans) {
      const service = String(valuesOf(resource.attributes)['service.name']);
      for (const span of scopeSpans.flatMap(({ spans }) => spans)) {
        const { name, traceId, spanId, parentSpanId = '', links = [] } = span;
        this.spans.push({
          service,
          name,
          traceId,
          spanId,
          parentSpanId,
          kind: kinds[span.kind] ?? 'unspecified',
          attributes: valuesOf(span.attributes),
          links: links.map((link) => link.traceId),
        });
      }
    }
  }
}

interface Attribute {
  key: string;
  value: Record<string, unknown>;
}

interface Export {
  resourceSpans?: {
    resource: { attributes: Attribute[] };
    scopeSpans: {
      spans: {
        name: string;
        traceId: string;
        spanId: string;
        parentSpanId?: string;
        kind: number;
        attributes: Attribute[];
        links?: { traceId: string }[];
      }[];
    }[];
  }[];
}

function valuesOf(attributes: Attribute[]): Record<string, unknown> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));
}
