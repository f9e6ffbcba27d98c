import { alternate } from '../measure/alternate.ts';
import type { Contender } from '../measure/alternate.ts';
import type { Load } from '../driver/jobs.ts';
import { ask, fieldsOf, noReconcile, resultOf, textOf } from '../system/api.ts';
import { startS3Server } from '../system/s3-server.ts';
import type { S3Server } from '../system/s3-server.ts';
import type { Stowage } from '../system/stowage.ts';
import { Started } from './workload.ts';
import type { Setting, Workload } from './workload.ts';

const fileBytes = 102_400;
const connections = 16;
/** Files that are made in one load: the driver has all their bytes in memory. */
const madeAtOnce = 1_000;
/** Gigabytes a round, and each as long as it takes: five rounds would tell no more. */
const roundsMax = 3;

/**
 * W8: from the PUT of a policy that wants a second copy of everything on S3 until its job is done: copied, read back and
 * committed. Beside it, what the same S3 server takes from a client that does nothing else.
 */
export const w8: Workload = {
  name: 'W8',
  title: '10,000 blobs of 100 KiB from one local backend to local and S3, beside 16 plain PUTs at a time',
  run: async (setting) => {
    await using started = new Started(setting, 'w8');
    const count = setting.small ? 50 : 10_000;
    const server = await started.add(startS3Server());
    const contenders: Contender[] = [putter(setting, server, count)];
    for (const system of await started.ownSystems()) {
      setting.say(`making ${count} files (${system.mode})`);
      await makeFiles(setting, system, count);
      contenders.push(await placer(system, server, count));
    }
    return await alternate('W8', 'per s', contenders, Math.min(setting.rounds, roundsMax));
  },
};

async function makeFiles({ driver }: Setting, { port, token }: Stowage, count: number): Promise<void> {
  for (let made = 0; made < count; made += madeAtOnce) {
    const some = Math.min(madeAtOnce, count - made);
    const files = { connections, bytes: fileBytes, count: some, prefix: `w8-${made}` };
    await driver.run({ kind: 'tus-files', port, token, ...files });
  }
}

function putter({ driver }: Setting, { pid, ...server }: S3Server, count: number): Contender {
  const { endpoint, bucket, accessKey, secretKey } = server;
  const account = { endpoint, bucket, accessKey, secretKey };
  return {
    name: 'bare PUTs',
    processes: { node: [pid], postgres: null },
    run: (round) =>
      driver.run({ kind: 's3-puts', ...account, connections, prefix: `bare/${round}/`, bytes: fileBytes, count }),
  };
}

/** Each round has a backend of its own; the one before is forgotten, so that nothing is left to remove. */
async function placer(system: Stowage, server: S3Server, count: number): Promise<Contender> {
  const { items } = await ask(system, 'GET', '/api/backends');
  const local = Array.isArray(items) ? items.map(fieldsOf).find((backend) => backend['is_default'] === true) : null;
  const localId = textOf(local ?? {}, 'id');
  const made: string[] = [];
  return {
    name: system.mode,
    processes: system.processes,
    run: async (round) => {
      const backendId = await makeBackend(system, server, `${system.mode}-${round}`);
      made.push(backendId);
      return timePolicy(system, [localId, backendId], count);
    },
    after: async () => {
      for (const backendId of made.splice(0)) {
        await ask(system, 'POST', `/api/backends/${backendId}/disable`, {});
        await ask(system, 'POST', `/api/backends/${backendId}/forget-replicas`, { confirm: true });
      }
    },
  };
}

async function makeBackend(system: Stowage, server: S3Server, name: string): Promise<string> {
  const config = {
    endpoint: server.endpoint,
    region: 'us-east-1',
    bucket: server.bucket,
    prefix: name,
    force_path_style: true,
    access_key_id: server.accessKey,
    secret_access_key: server.secretKey,
  };
  return textOf(await ask(system, 'POST', '/api/backends', { name, type: 's3', config }), 'id');
}

async function timePolicy(system: Stowage, backends: readonly string[], count: number): Promise<Load> {
  // One that was queued when the backend was found healthy would do the work, or be waited for.
  await noReconcile(system);
  const started = performance.now();
  const policy = { backends, replicas: backends.length };
  const { job } = await ask(system, 'PUT', '/api/policies/placement/default', policy);
  const { copied, verified, failed } = await resultOf(system, job);
  const seconds = (performance.now() - started) / 1000;
  if (copied !== count || verified !== count || failed !== 0)
    throw new Error(
      `of ${count}, ${String(copied)} were copied, ${String(verified)} verified, ${String(failed)} failed`,
    );
  const bytes = count * fileBytes;
  return {
    seconds,
    operations: count,
    bytes,
    p50Ms: 0,
    p99Ms: 0,
    driverCpuSeconds: 0,
    ids: [],
    parts: {},
    medians: {},
  };
}
