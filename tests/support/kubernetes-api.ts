import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { selfSigned } from './certificates.ts';

type Json = Readonly<Record<string, unknown>>;

interface Watcher {
  name: string;
  response: ServerResponse;
}

/**
 * The part of a Kubernetes API server that lists and watches Secrets of one namespace, for a service account whose Role
 * names some of them: who asks for another one, or for all, is refused.
 */
export interface KubernetesApi {
  /** For `KUBECONFIG`. */
  kubeconfig: string;
  /** What clients authenticate with. */
  token: string;
  /** Makes or changes a Secret; null removes it. */
  put(name: string, values: Record<string, string> | null): void;
  /** Watches that are open now. */
  watchers(): number;
  /** Breaks every connection of a watch, in the middle of a line. */
  cutWatches(): void;
  /** Ends every watch as a server does that has forgotten where it began. */
  expireWatches(): void;
  /** Answers everything with this status, or again as it should. */
  fail(status: number | null): void;
  close(): Promise<void>;
}

const namespace = 'stowage-tests';

export async function startKubernetesApi(roleNames: readonly string[]): Promise<KubernetesApi> {
  const token = `token-${randomBytes(16).toString('hex')}`;
  const secrets = new Map<string, Json>();
  const watchers = new Set<Watcher>();
  let version = 1;
  let failing: number | null = null;

  const send = ({ response }: Watcher, type: string, object: unknown): void => {
    response.write(`${JSON.stringify({ type, object })}\n`);
  };
  const answer = (response: ServerResponse, status: number, body: unknown): void => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(body));
  };
  const handle = (request: IncomingMessage, response: ServerResponse): void => {
    const url = new URL(request.url ?? '/', 'http://kubernetes');
    const [, name = ''] = /^metadata\.name=(.+)$/.exec(url.searchParams.get('fieldSelector') ?? '') ?? [];
    if (failing !== null) return answer(response, failing, { kind: 'Status', code: failing });
    if (request.headers.authorization !== `Bearer ${token}`)
      return answer(response, 401, { kind: 'Status', code: 401 });
    if (url.pathname !== `/api/v1/namespaces/${namespace}/secrets` || !roleNames.includes(name)) {
      return answer(response, 403, { kind: 'Status', code: 403, message: 'forbidden' });
    }
    const found = secrets.get(name);
    if (url.searchParams.get('watch') !== 'true') {
      const metadata = { resourceVersion: String(version) };
      return answer(response, 200, { kind: 'SecretList', apiVersion: 'v1', metadata, items: found ? [found] : [] });
    }
    const watcher = { name, response };
    response.writeHead(200, { 'content-type': 'application/json' });
    response.flushHeaders();
    // What came between the list and the watch.
    if (Number(url.searchParams.get('resourceVersion')) < version && found) send(watcher, 'MODIFIED', found);
    watchers.add(watcher);
    response.once('close', () => watchers.delete(watcher));
  };

  const { key, cert } = selfSigned();
  const server = createServer({ key, cert }, handle);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const folder = await mkdtemp(join(tmpdir(), 'stowage-kubernetes-'));
  const kubeconfig = join(folder, 'config');
  const { port } = server.address() as AddressInfo;
  await writeFile(kubeconfig, JSON.stringify(kubeconfigOf(`https://127.0.0.1:${port}`, cert, token)));
  return {
    kubeconfig,
    token,
    put: (name, values) => {
      version += 1;
      const metadata = { name, namespace, resourceVersion: String(version) };
      const before = secrets.get(name);
      const data = Object.entries(values ?? {}).map(([key, value]) => [key, Buffer.from(value).toString('base64')]);
      const secret = { kind: 'Secret', apiVersion: 'v1', metadata, data: Object.fromEntries(data) };
      if (values) secrets.set(name, secret);
      else secrets.delete(name);
      const type = values ? (before ? 'MODIFIED' : 'ADDED') : 'DELETED';
      for (const watcher of watchers) if (watcher.name === name) send(watcher, type, secret);
    },
    watchers: () => watchers.size,
    cutWatches: () => {
      for (const { response } of watchers) {
        response.write('{"type":"MODI');
        response.destroy();
      }
      watchers.clear();
    },
    expireWatches: () => {
      for (const watcher of watchers) {
        send(watcher, 'ERROR', { kind: 'Status', code: 410, reason: 'Expired' });
        watcher.response.end();
      }
      watchers.clear();
    },
    fail: (status) => {
      failing = status;
    },
    close: async () => {
      server.closeAllConnections();
      server.close();
      await rm(folder, { recursive: true });
    },
  };
}

function kubeconfigOf(server: string, cert: string, token: string): Json {
  const authority = Buffer.from(cert).toString('base64');
  return {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'test',
    clusters: [{ name: 'test', cluster: { server, 'certificate-authority-data': authority } }],
    users: [{ name: 'test', user: { token } }],
    contexts: [{ name: 'test', context: { cluster: 'test', user: 'test', namespace } }],
  };
}
