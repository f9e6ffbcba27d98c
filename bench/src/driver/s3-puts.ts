import { Agent, request } from 'node:http';
import { fillerOf } from './connection.ts';
import type { S3PutsJob } from './jobs.ts';
import { inTurn, Latencies } from './latencies.ts';
import { timed } from './run.ts';
import type { Outcome } from './run.ts';
import { signedHeadersOf } from './s3-signature.ts';
import type { S3Account } from './s3-signature.ts';

/** Plain PUTs of objects of one size, side by side, by node:http over connections that are kept. */
export async function putObjects(job: S3PutsJob): Promise<Outcome> {
  const agent = new Agent({ keepAlive: true, maxSockets: job.connections });
  const body = fillerOf(job.bytes);
  const latencies = new Latencies(job.count);
  try {
    return await timed(latencies, job.count, async () => {
      await inTurn(Array.from({ length: job.connections }), job.count, async (_, index) => {
        const start = performance.now();
        await putObject(agent, job, `/${job.bucket}/${job.prefix}${index}`, body);
        latencies.note(start);
      });
      return { bytes: job.count * job.bytes };
    });
  } finally {
    agent.destroy();
  }
}

/** Makes a bucket. */
export async function makeBucket(account: S3Account): Promise<void> {
  const agent = new Agent();
  await putObject(agent, account, `/${account.bucket}`, Buffer.alloc(0));
  agent.destroy();
}

async function putObject(agent: Agent, account: S3Account, path: string, body: Buffer): Promise<void> {
  const headers = { ...signedHeadersOf(account, 'PUT', path, body), 'content-length': body.length };
  const { promise, resolve, reject } = Promise.withResolvers<number | undefined>();
  const put = request(new URL(path, account.endpoint), { agent, method: 'PUT', headers }, (answer) => {
    answer.on('error', reject).on('end', () => resolve(answer.statusCode));
    answer.resume();
  });
  put.on('error', reject).end(body);
  const status = await promise;
  if (status !== 200) throw new Error(`PUT ${path} was answered with ${status}`);
}
