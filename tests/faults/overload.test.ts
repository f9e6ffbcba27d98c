import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { inBatches } from '../support/tree.ts';
import { logIn } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { startSystem } from '../support/system.ts';
import type { Mode, System } from '../support/system.ts';
import { full, report, sized } from './support/size.ts';
import { askSteadily, getOnce, percentile } from './support/steady-load.ts';
import type { Outcome, Target } from './support/steady-load.ts';

const measureMs = 5_000;
const overloadMs = sized(20_000, 60_000);
const factor = 5;
/** More than the gateway lets in; each asks again once it is answered. */
const connections = 1_000;
/** After which a client has no more use for an answer. */
const patienceMs = 30_000;

describe.each<Mode>(['standalone', 'services'])('five times more than can be answered, %s', (mode) => {
  let system: System;
  let client: Client;
  let target: Target;

  beforeAll(async () => {
    system = await startSystem(mode, { STOWAGE_DATABASE_CONNECTIONS: '10' });
    client = await logIn(system.url);
    const { id } = await client.makeDirectory('listed');
    await inBatches(
      Array.from({ length: 100 }, (_, index) => `child-${index}`),
      (name) => client.makeDirectory(name, String(id)),
    );
    const path = `/api/directories/${id}/children`;
    target = { url: system.url, path, token: client.token, timeoutMs: patienceMs };
  });

  afterAll(() => system?.close());

  async function capacity(): Promise<number> {
    const end = performance.now() + measureMs;
    const outcomes = await askSteadily(target, 32, () => performance.now() > end);
    return outcomes.filter(({ status }) => status === 200).length / (measureMs / 1_000);
  }

  /** So many a second, whether or not they are answered. */
  async function flood(perSecond: number, ms: number): Promise<Outcome[]> {
    const agent = new Agent({ keepAlive: true, maxSockets: connections });
    const running: Promise<Outcome>[] = [];
    const begun = performance.now();
    for (let elapsed = 0; elapsed < ms; elapsed = performance.now() - begun) {
      while (running.length < (elapsed / 1_000) * perSecond) running.push(getOnce(agent, target));
      await sleep(5);
    }
    const outcomes = await Promise.all(running);
    agent.destroy();
    return outcomes;
  }

  /** Asks for `path` every 250 ms until `stopped`. */
  async function probe(path: string, stopped: () => boolean): Promise<Outcome[]> {
    const agent = new Agent({ keepAlive: true });
    const outcomes: Outcome[] = [];
    while (!stopped()) {
      outcomes.push(await getOnce(agent, { ...target, path, token: null }));
      await sleep(250);
    }
    agent.destroy();
    return outcomes;
  }

  test('are answered as far as can be, the rest is sent away, and all is well right after', async () => {
    await capacity();
    const able = await capacity();
    let stopped = false;
    const probes = [probe('/api/system/ready', () => stopped), probe('/api/system/health', () => stopped)];
    const outcomes = await flood(able * factor, overloadMs);
    const over = performance.now();
    stopped = true;
    const [ready = [], health = []] = await Promise.all(probes);
    const agent = new Agent({ keepAlive: true });
    let recovered = await getOnce(agent, target);
    while ((recovered.status !== 200 || recovered.ms > 1_000) && performance.now() - over < 20_000)
      recovered = await getOnce(agent, target);
    const recoveryMs = performance.now() - over;
    agent.destroy();
    const good = outcomes.filter(({ status }) => status === 200);
    const shed = outcomes.filter(({ status }) => status === 503 || status === 429);
    const last = Math.max(...good.map(({ at, ms }) => at + ms));
    const seconds = (last - (outcomes[0]?.at ?? 0)) / 1_000;
    const goodput = good.length / seconds;
    report(`overload, ${mode}`, {
      capacity_per_s: Math.round(able),
      asked_per_s: Math.round(outcomes.length / (overloadMs / 1_000)),
      goodput_per_s: Math.round(goodput),
      goodput_share: Math.round((goodput / able) * 100) / 100,
      good_ms: { p50: percentile(good, 0.5), p99: percentile(good, 0.99) },
      shed: shed.length,
      shed_ms: { p50: percentile(shed, 0.5), p99: percentile(shed, 0.99) },
      lost: outcomes.length - good.length - shed.length,
      ready_ms: { p50: percentile(ready, 0.5), max: percentile(ready, 1) },
      health_max_ms: percentile(health, 1),
      recovery_ms: Math.round(recoveryMs),
    });
    expect(outcomes.filter(({ status }) => ![200, 429, 503].includes(status))).toEqual([]);
    expect(shed.filter(({ retryAfter }) => retryAfter === null)).toEqual([]);
    expect(shed.length).toBeGreaterThan(good.length / 2);
    expect(ready.filter(({ status }) => status !== 200)).toEqual([]);
    expect(percentile(ready, 0.95)).toBeLessThan(1_000);
    expect(recoveryMs).toBeLessThan(5_000);
    // The clients take their share of the same cores: only on a machine of its own is the promise asked for in full.
    expect(goodput / able).toBeGreaterThan(full ? 0.8 : 0.3);
  }, 240_000);
});
