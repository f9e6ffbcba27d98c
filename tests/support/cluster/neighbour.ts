import { setTimeout as sleep } from 'node:timers/promises';
import { uniqueName } from '../system.ts';
import { apply } from './commands.ts';
import type { Release } from './release.ts';

/** What a pod met that called an inner port of ours. */
export interface Attempt {
  /** `open`, or the error's code. */
  connection: string;
  /** Of a gRPC call: the HTTP status that came over a connection without TLS, or the error's code. */
  plain: string;
  /** As `plain`, over TLS without a certificate of its own. */
  withoutCertificate: string;
}

const script = `
const { connect } = require('node:net');
const { connect: open } = require('node:http2');
const [host, port, path] = process.argv.slice(1);
const late = (stop) => setTimeout(() => stop('no answer'), 5000);
const tryOnce = () => new Promise((resolve) => {
  const socket = connect(Number(port), host, () => { socket.destroy(); resolve('open'); });
  socket.on('error', (error) => resolve(error.code));
  late((why) => { socket.destroy(); resolve(why); });
});
// The policies that let this pod out may not know its address yet.
const connection = async () => {
  let met = await tryOnce();
  for (let left = 10; met !== 'open' && left > 0; left -= 1) {
    await new Promise((resolve) => setTimeout(resolve, 500));
    met = await tryOnce();
  }
  return met;
};
const call = (scheme) => new Promise((resolve) => {
  const session = open(scheme + '://' + host + ':' + port, { rejectUnauthorized: false });
  session.on('error', (error) => resolve(error.code));
  const request = session.request({ ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers' });
  request.on('error', (error) => resolve(error.code));
  request.on('response', (headers) => { session.destroy(); resolve(String(headers[':status'])); });
  request.on('close', () => resolve('closed'));
  request.end(Buffer.alloc(5));
  late((why) => { session.destroy(); resolve(why); });
});
(async () => {
  const result = { connection: await connection(), plain: await call('http'), withoutCertificate: await call('https') };
  console.log(JSON.stringify(result));
  process.exit(0);
})();`;

/**
 * Calls a gRPC method from a pod in the release's namespace that is none of its services, but has these labels. It is never
 * Ready, so that no Service counts it as its own.
 */
export async function callFromNeighbour(
  release: Release,
  target: { host: string; port: number; method: string },
  labels: Record<string, string> = {},
): Promise<Attempt> {
  const name = uniqueName('neighbour');
  const [pod] = await release.pods('gateway');
  await apply({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace: release.namespace, labels },
    spec: {
      restartPolicy: 'Never',
      automountServiceAccountToken: false,
      readinessGates: [{ conditionType: 'stowage.dev/never' }],
      securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: 'RuntimeDefault' } },
      containers: [
        {
          name: 'main',
          image: pod?.['spec'].containers[0].image,
          imagePullPolicy: 'IfNotPresent',
          command: ['node', '-e', script, target.host, String(target.port), target.method],
          securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } },
        },
      ],
    },
  });
  for (;;) {
    const phase = await release.kubectl(['get', 'pod', name, '-o', 'jsonpath={.status.phase}']);
    if (phase === 'Succeeded') break;
    if (phase === 'Failed') throw new Error(await release.kubectl(['logs', name]));
    await sleep(500);
  }
  const printed = await release.kubectl(['logs', name]);
  await release.kubectl(['delete', 'pod', name, '--wait=false']);
  return JSON.parse(printed);
}
