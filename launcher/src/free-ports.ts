import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { Server } from 'node:net';

const loopback = '127.0.0.1';
/** The first port of a range, and the first behind it. */
export interface PortRange {
  from: number;
  below: number;
}

/** Below what systems give to outgoing connections (Linux from 32768, others from 49152), which may take a port that is only free now. */
const launched: PortRange = { from: 10_000, below: 20_000 };
const manyTries = 1_000;

/** `count` ports of loopback that are free now, no two the same; of the default range none that an outgoing connection takes before they are used. */
export async function freePorts(count: number, range = launched): Promise<number[]> {
  const held = new Map<number, Server>();
  try {
    for (let tries = 0; held.size < count; tries += 1) {
      if (tries === manyTries) throw new Error(`no ${count} free ports on ${loopback}`);
      const port = randomInt(range.from, range.below);
      const server = held.has(port) ? undefined : await listen(port);
      if (server) held.set(port, server);
    }
    return [...held.keys()];
  } finally {
    await Promise.all([...held.values()].map((server) => once(server.close(), 'close')));
  }
}

/** One such port. */
export async function freePort(range = launched): Promise<number> {
  const [port] = await freePorts(1, range);
  if (port === undefined) throw new Error(`no free port on ${loopback}`);
  return port;
}

/** Undefined where the port is taken. */
async function listen(port: number): Promise<Server | undefined> {
  const server = createServer();
  return once(server.listen(port, loopback), 'listening').then(
    () => server,
    () => undefined,
  );
}
