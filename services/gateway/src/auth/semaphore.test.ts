import { expect, test } from '@jest/globals';
import { Semaphore } from './semaphore.ts';

test('as many as there are slots run at a time, in the order in which they came', async () => {
  const semaphore = new Semaphore(2);
  const order: number[] = [];
  let running = 0;
  let most = 0;
  const work = async (n: number): Promise<void> => {
    order.push(n);
    running += 1;
    most = Math.max(most, running);
    await new Promise((resolve) => setImmediate(resolve));
    running -= 1;
  };
  await Promise.all([0, 1, 2, 3, 4, 5, 6].map((n) => semaphore.run(() => work(n))));
  expect({ most, order }).toEqual({ most: 2, order: [0, 1, 2, 3, 4, 5, 6] });
});

test('who comes when too many wait is turned away, and room is made by whoever fails as well', async () => {
  const semaphore = new Semaphore(1, 2);
  const blocked = Promise.withResolvers<void>();
  const first = semaphore.run(() => blocked.promise);
  const waiting = [semaphore.run(async () => 'second'), semaphore.run(async () => 'third')];
  await expect(semaphore.run(async () => 'fourth')).rejects.toMatchObject({ code: 'unavailable' });
  blocked.reject(new Error('failed'));
  await expect(first).rejects.toThrow('failed');
  expect(await Promise.all(waiting)).toEqual(['second', 'third']);
  expect(await semaphore.run(async () => 'fifth')).toBe('fifth');
});
