import { Connection, expectStatus, fillerOf, headOf } from './connection.ts';
import type { OpenConnectionsJob, RequestsJob, WireRequest } from './jobs.ts';
import { inTurn, LabelledLatencies, Latencies } from './latencies.ts';
import type { Outcome } from './run.ts';
import { timed } from './run.ts';

interface Prepared {
  what: string;
  label: string | undefined;
  /** The whole of a request with a short body or none; else its head. */
  bytes: Buffer;
  longBody: number;
  expect: number;
}

const shortBodyMax = 1 << 18;
/** Opening all at once would overflow the server's backlog. */
const openAtOnce = 50;

/** Sends independent requests and counts what comes back. */
export async function sendRequests(job: RequestsJob): Promise<Outcome> {
  const prepared = job.requests.map((request) => prepare(request, job.token));
  const connections = await openAll(job.port, job.connections, job.readBytes);
  try {
    return await sendAll(connections, prepared, job.count);
  } finally {
    for (const connection of connections) connection.close();
  }
}

/** Keeps many connections open and uses a few at a time. */
export async function keepOpen(job: OpenConnectionsJob): Promise<Outcome> {
  const started = performance.now();
  const request = prepare(job.request, job.token);
  const connections = await openAll(job.port, job.connections, 4096);
  const opened = (performance.now() - started) / 1000;
  try {
    const latencies = new Latencies(job.count);
    const workers = Array.from({ length: job.active }, (_, worker) => ({ worker, turn: 0 }));
    const outcome = await timed(latencies, job.count, async () => {
      let bytes = 0;
      await inTurn(workers, job.count, async (lane) => {
        // A lane has every active-th connection for itself.
        const own = Math.floor((job.connections - lane.worker - 1) / job.active) + 1;
        const connection = connections[lane.worker + (lane.turn++ % own) * job.active];
        if (!connection) throw new Error('there are fewer connections than lanes');
        const sent = await sendOne(connection, request, latencies);
        bytes += sent;
      });
      return { bytes };
    });
    return { ...outcome, parts: { open: opened } };
  } finally {
    for (const connection of connections) connection.close();
  }
}

async function sendAll(
  connections: readonly Connection[],
  prepared: readonly Prepared[],
  count: number,
): Promise<Outcome> {
  const latencies = new Latencies(count);
  const labelled = new LabelledLatencies(count);
  return timed(latencies, count, async () => {
    let bytes = 0;
    await inTurn(connections, count, async (connection, index) => {
      const request = prepared[index % prepared.length];
      if (!request) throw new Error('there are no requests');
      const sent = await sendOne(connection, request, latencies, labelled);
      bytes += sent;
    });
    return { bytes, medians: labelled.medians() };
  });
}

/** Gives the bytes of content that went either way. */
async function sendOne(
  connection: Connection,
  request: Prepared,
  latencies: Latencies,
  labelled?: LabelledLatencies,
): Promise<number> {
  const start = performance.now();
  const answer =
    request.longBody > 0
      ? await connection.sendLong(request.bytes, request.longBody)
      : await connection.send(request.bytes);
  latencies.note(start);
  if (request.label !== undefined) labelled?.note(request.label, start);
  expectStatus(answer, request.expect, request.what);
  return answer.bodyBytes + request.longBody;
}

function prepare(
  { method, path, headers = {}, body, expect, label }: WireRequest,
  token: string | undefined,
): Prepared {
  const all = token === undefined ? headers : { ...headers, Authorization: `Bearer ${token}` };
  const what = `${method} ${path}`;
  if (typeof body === 'number' && body > shortBodyMax) {
    return { what, label, bytes: headOf(method, path, body, all), longBody: body, expect };
  }
  const content = typeof body === 'number' ? fillerOf(body) : Buffer.from(body ?? '');
  const head = headOf(method, path, body === undefined ? null : content.length, all);
  return { what, label, bytes: Buffer.concat([head, content]), longBody: 0, expect };
}

/** Opens connections, some at a time. */
export async function openAll(port: number, count: number, readBytes: number): Promise<Connection[]> {
  const connections: Connection[] = [];
  while (connections.length < count) {
    const some = Math.min(openAtOnce, count - connections.length);
    connections.push(...(await Promise.all(Array.from({ length: some }, () => Connection.open(port, readBytes)))));
  }
  return connections;
}
