import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { Readable } from 'node:stream';
import { AppError } from '@stowage/common/errors';
import { Bandwidth } from './bandwidth.ts';
import type { Clock } from './bandwidth.ts';
import { never, refuses } from './stores/test-store.ts';

const mebibyte = 1024 * 1024;

/** A clock that goes on when everybody waits for it, and never else. */
class FakeClock implements Clock {
  #now = 1_000_000;
  readonly #sleepers: { until: number; wake: () => void }[] = [];

  now(): number {
    return this.#now;
  }

  async sleep(milliseconds: number, signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#sleepers.push({ until: this.#now + milliseconds, wake: resolve });
    signal.addEventListener('abort', () => reject(new Error('aborted')), { once: true });
    await promise;
  }

  get sleepers(): number {
    return this.#sleepers.length;
  }

  /** Wakes whoever has to wait least, until `over`. */
  async run(over: () => boolean): Promise<void> {
    while (!over()) {
      await new Promise(setImmediate);
      const [next] = this.#sleepers.sort((one, other) => one.until - other.until);
      if (!next) continue;
      this.#sleepers.shift();
      this.#now = Math.max(this.#now, next.until);
      next.wake();
    }
  }
}

interface Passed {
  at: number;
  bytes: number;
}

/** Sends bodies of these pieces through a limit, all at once; gives when which bytes passed. */
async function send(bytesPerSecond: number, bodies: readonly (readonly number[])[]): Promise<Passed[]> {
  const clock = new FakeClock();
  const bandwidth = new Bandwidth(bytesPerSecond, clock);
  const passed: Passed[] = [];
  const transfers = bodies.map((pieces) =>
    bandwidth.turn(never, async () => {
      const body = Readable.from(
        pieces.map((length) => Buffer.alloc(length)),
        { objectMode: false },
      );
      for await (const piece of bandwidth.limit(body, never)) passed.push({ at: clock.now(), bytes: piece.length });
    }),
  );
  let over = false;
  const all = Promise.all(transfers).finally(() => (over = true));
  await clock.run(() => over);
  await all;
  return passed;
}

/** By how many bytes the busiest time went beyond the rate and one second of it. */
function worstExcess(passed: readonly Passed[], rate: number): number {
  let worst = -Infinity;
  for (const [first, { at: from }] of passed.entries()) {
    let moved = 0;
    for (const { at, bytes } of passed.slice(first)) {
      moved += bytes;
      worst = Math.max(worst, moved - rate * ((at - from) / 1_000 + 1));
    }
  }
  return worst;
}

describe('the bandwidth of background work', () => {
  test('is never more, in any time, than the rate and one second of it, and no byte is lost', async () => {
    const rates = fc.integer({ min: 256 * 1024, max: 4 * mebibyte });
    const bodies = fc.array(fc.array(fc.integer({ min: 1, max: mebibyte }), { maxLength: 6 }), { maxLength: 12 });
    await fc.assert(
      fc.asyncProperty(rates, bodies, async (rate, sizes) => {
        const passed = await send(rate, sizes);
        const sent = sizes.flat().reduce((sum, size) => sum + size, 0);
        expect(passed.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(sent);
        expect(worstExcess(passed, rate)).toBeLessThanOrEqual(1e-3);
      }),
      { numRuns: 40 },
    );
  });

  test('is used: what is limited takes hardly longer than it must', async () => {
    const passed = await send(
      mebibyte,
      Array.from({ length: 8 }, () => [mebibyte, mebibyte]),
    );
    const last = passed.at(-1)?.at ?? 0;
    // 16 MiB, of which the first one is free, and a millisecond for each of 256 slices.
    expect(last - 1_000_000).toBeGreaterThanOrEqual(15_000);
    expect(last - 1_000_000).toBeLessThanOrEqual(15_000 + 256);
  });

  test('without a limit is not touched: the body itself is given, and nobody waits', async () => {
    const bandwidth = new Bandwidth(null);
    const body = Readable.from([Buffer.from('x')]);
    expect(bandwidth.limit(body, never)).toBe(body);
    const held = Array.from({ length: 200 }, () => Promise.withResolvers<void>());
    const running = held.map(({ promise }) => bandwidth.turn(never, () => promise));
    expect(await bandwidth.turn(never, async () => 'at once')).toBe('at once');
    for (const { resolve } of held) resolve();
    await Promise.all(running);
  });

  test('lets few go on at once, the others in their order, and who gives up takes no place', async () => {
    const bandwidth = new Bandwidth(512 * 1024);
    const order: number[] = [];
    const gates = Array.from({ length: 6 }, () => Promise.withResolvers<void>());
    const leaving = new AbortController();
    const running = gates.map(({ promise }, at) =>
      bandwidth.turn(at === 3 ? leaving.signal : never, async () => {
        order.push(at);
        await promise;
      }),
    );
    await new Promise(setImmediate);
    expect(order).toEqual([0, 1]);
    leaving.abort(new AppError('locked', 'for a reason'));
    await refuses(Promise.resolve(running[3]), 'locked');
    gates[1]?.reject(new Error('this one failed'));
    await expect(running[1]).rejects.toThrow('this one failed');
    await new Promise(setImmediate);
    expect(order).toEqual([0, 1, 2]);
    for (const { resolve } of gates) resolve();
    await Promise.all(running.filter((_, at) => at !== 1 && at !== 3));
    expect(order).toEqual([0, 1, 2, 4, 5]);
  });

  test('a body that breaks, a reader that leaves and a caller that cancels give everything back', async () => {
    const clock = new FakeClock();
    const bandwidth = new Bandwidth(256 * 1024, clock);
    const broken = new Readable({ read: () => broken.destroy(new AppError('unavailable', 'the disk is gone')) });
    await refuses(bandwidth.limit(broken, never).toArray(), 'unavailable');

    const endless = (): Readable => new Readable({ read: () => void body.push(Buffer.alloc(mebibyte)) });
    let body = endless();
    for await (const piece of bandwidth.limit(body, never)) {
      expect(piece.length).toBeGreaterThan(0);
      break;
    }
    expect(body.destroyed).toBe(true);

    body = endless();
    const cancel = new AbortController();
    const reading = bandwidth.limit(body, cancel.signal).toArray();
    while (clock.sleepers === 0) await new Promise(setImmediate);
    cancel.abort();
    await refuses(reading, 'unavailable');
    expect(body.destroyed).toBe(true);
  });
});
