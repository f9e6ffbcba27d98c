import { expect, test } from '@jest/globals';
import { BackendBusy, BackendSlots } from './backend-slots.ts';
import type { SlotOptions, Work } from './backend-slots.ts';

const options: SlotOptions = { most: 3, waitMs: 60_000, slowMs: 2_000, slowMost: 1, restMs: 0 };

/** Work that lasts until it is told to end. */
class Lasting {
  readonly started: string[] = [];
  readonly #ends = new Map<string, () => void>();

  begin(slots: BackendSlots, name: string, work: Partial<Work> = {}): Promise<void> {
    return slots.run({ backendId: 'a', from: null, size: 0, ...work }, () => {
      this.started.push(name);
      return new Promise((resolve) => this.#ends.set(name, resolve));
    });
  }

  end(name: string): void {
    this.#ends.get(name)?.();
  }
}

test('each backend has its own places, and who waits for one gets the next that is free', async () => {
  const slots = new BackendSlots(options, () => 0);
  const work = new Lasting();
  const first = work.begin(slots, 'one');
  const running = ['two', 'three', 'four'].map((name) => work.begin(slots, name));
  running.push(work.begin(slots, 'elsewhere', { backendId: 'b' }));
  expect(work.started).toEqual(['one', 'two', 'three', 'elsewhere']);
  work.end('one');
  await first;
  await new Promise(setImmediate);
  expect(work.started).toContain('four');
  for (const name of ['two', 'three', 'four', 'elsewhere']) work.end(name);
  await Promise.all(running);
});

test('one place is kept from each source', async () => {
  const slots = new BackendSlots(options, () => 0);
  const work = new Lasting();
  const running = ['one', 'two', 'three'].map((name) => work.begin(slots, name, { from: 'slow' }));
  running.push(work.begin(slots, 'other', { from: 'fast' }));
  expect(work.started).toEqual(['one', 'two', 'other']);
  for (const name of ['one', 'two', 'other']) work.end(name);
  await new Promise(setImmediate);
  work.end('three');
  await Promise.all(running);
});

test('nobody waits for a backend that is slow, and each comes again later than the one before', async () => {
  let now = 0;
  const slots = new BackendSlots(options, () => now);
  const work = new Lasting();
  const running = work.begin(slots, 'slow', { size: 1_048_000 });
  now = 2_900;
  const second = work.begin(slots, 'second');
  now = 3_100;
  const delays = [1, 2, 3].map(() =>
    work.begin(slots, 'late').then(
      () => 0,
      (error: unknown) => (error instanceof BackendBusy ? error.delayMs : -1),
    ),
  );
  expect(await Promise.all(delays)).toEqual([1_000, 1_100, 1_200]);
  work.end('slow');
  work.end('second');
  await Promise.all([running, second]);
  const after = work.begin(slots, 'after');
  work.end('after');
  await after;
});

test('a backend that held up much is left alone for a while', async () => {
  let now = 0;
  const slots = new BackendSlots({ ...options, slowMost: 2, restMs: 60_000 }, () => now);
  const work = new Lasting();
  const running = ['one', 'two'].map((name) => work.begin(slots, name));
  now = 5_000;
  for (const name of ['one', 'two']) work.end(name);
  await Promise.all(running);
  now = 10_000;
  const again = work.begin(slots, 'again');
  now = 20_000;
  const more = work.begin(slots, 'more');
  now = 23_000;
  await expect(work.begin(slots, 'refused')).rejects.toBeInstanceOf(BackendBusy);
  for (const name of ['again', 'more']) work.end(name);
  await Promise.all([again, more]);
  await expect(work.begin(slots, 'resting')).rejects.toBeInstanceOf(BackendBusy);
  now = 90_000;
  const rested = work.begin(slots, 'rested');
  work.end('rested');
  await rested;
});
