import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import sharp from 'sharp';
import type { Sharp } from 'sharp';
import { ImagePreviewer } from './preview-process.ts';
import type { PreviewLimits } from './preview-process.ts';

const usual: PreviewLimits = { pixels: 1e9, timeoutMs: 10_000, memoryBytes: 512 * 2 ** 20, queue: 4 };
const never = new AbortController().signal;
const tooMuch = expect.objectContaining({ code: 'unprocessable', detail: expect.stringContaining('takes too much') });
const unavailable = expect.objectContaining({ code: 'unavailable' });

let small: Buffer;
/** 108 MB that must all be in memory to be read, as it is interlaced. */
let hog: Buffer;
beforeAll(async () => {
  small = await square(50).toBuffer();
  hog = await square(6_000).png({ progressive: true, compressionLevel: 1 }).toBuffer();
});

const previewers: ImagePreviewer[] = [];
afterEach(async () => {
  await Promise.all(previewers.splice(0).map((one) => one.close()));
});

function previewer(limits: Partial<PreviewLimits> = {}): ImagePreviewer {
  const made = new ImagePreviewer({ ...usual, ...limits });
  previewers.push(made);
  return made;
}

function square(size: number): Sharp {
  return sharp({ create: { width: size, height: size, channels: 3, background: '#f00' } }).png();
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    // An orphan that nobody reaps stays as a zombie.
    return process.platform !== 'linux' || !readFileSync(`/proc/${pid}/stat`, 'utf8').includes(') Z ');
  } catch {
    return false;
  }
}

async function gone(pid: number): Promise<boolean> {
  for (let tries = 0; tries < 100 && isAlive(pid); tries += 1) await sleep(50);
  return !isAlive(pid);
}

async function pidOf(one: ImagePreviewer): Promise<number> {
  await one.makeWebp(async () => small, 64, never);
  if (one.childPid === undefined) throw new Error('no child');
  return one.childPid;
}

describe('what takes too much', () => {
  test('memory is refused, and the next picture is made', async () => {
    const one = previewer({ memoryBytes: 150 * 2 ** 20 });
    const pid = await pidOf(one);
    await expect(one.makeWebp(async () => hog, 64, never)).rejects.toEqual(tooMuch);
    expect(await gone(pid)).toBe(true);
    expect(await pidOf(one)).not.toBe(pid);
  });

  test('time is refused, and the child is gone', async () => {
    const one = previewer({ timeoutMs: 1 });
    const refused = expect(one.makeWebp(async () => hog, 64, never)).rejects.toEqual(tooMuch);
    await sleep(1);
    const pid = one.childPid ?? 0;
    expect(isAlive(pid)).toBe(true);
    await refused;
    expect(await gone(pid)).toBe(true);
    expect(one.childPid).toBeUndefined();
  });
});

describe('its callers', () => {
  test('wait in a bounded line', async () => {
    const one = previewer({ queue: 2 });
    const calls = Array.from({ length: 5 }, () => one.makeWebp(async () => small, 64, never));
    const refused = calls.slice(3).map((call) => expect(call).rejects.toEqual(unavailable));
    await Promise.all(refused);
    await expect(Promise.all(calls.slice(0, 3))).resolves.toHaveLength(3);
  });

  test('have their pictures read one at a time, and only when it is their turn', async () => {
    const one = previewer({ queue: 2 });
    let [reading, most] = [0, 0];
    const load = async (): Promise<Buffer> => {
      reading += 1;
      most = Math.max(most, reading);
      await sleep(5);
      reading -= 1;
      return small;
    };
    const calls = await Promise.allSettled(Array.from({ length: 6 }, () => one.makeWebp(load, 64, never)));
    expect(calls.filter(({ status }) => status === 'fulfilled')).toHaveLength(3);
    expect(most).toBe(1);
  });

  test('get their own picture each', async () => {
    const sizes = [10, 20, 30, 40, 50];
    const pictures = await Promise.all(sizes.map((size) => square(size).toBuffer()));
    const one = previewer();
    const made = await Promise.all(pictures.map((picture) => one.makeWebp(async () => picture, 64, never)));
    expect(await Promise.all(made.map(async (webp) => (await sharp(webp).metadata()).width))).toEqual(sizes);
  });

  test('may leave the line', async () => {
    const one = previewer({ queue: 1 });
    const gaveUp = new AbortController();
    const first = one.makeWebp(async () => small, 64, never);
    const second = one.makeWebp(async () => small, 64, gaveUp.signal);
    gaveUp.abort(new Error('gave up'));
    await expect(second).rejects.toThrow('gave up');
    await expect(Promise.all([first, one.makeWebp(async () => small, 64, never)])).resolves.toHaveLength(2);
  });

  test('may give up while it works, which ends the child', async () => {
    const one = previewer();
    const pid = await pidOf(one);
    const gaveUp = new AbortController();
    const running = one.makeWebp(async () => hog, 64, gaveUp.signal);
    const refused = expect(running).rejects.toThrow('gave up');
    await sleep(30);
    gaveUp.abort(new Error('gave up'));
    await refused;
    expect(await gone(pid)).toBe(true);
    expect(await pidOf(one)).not.toBe(pid);
  });

  test('are told when it is closed', async () => {
    const one = previewer();
    const pid = await pidOf(one);
    const calls = [one.makeWebp(async () => hog, 64, never), one.makeWebp(async () => hog, 64, never)];
    const refused = Promise.all(calls.map((call) => expect(call).rejects.toEqual(unavailable)));
    await sleep(30);
    await one.close();
    await refused;
    expect(isAlive(pid)).toBe(false);
    await expect(one.makeWebp(async () => hog, 64, never)).rejects.toEqual(unavailable);
  });
});

describe('its child', () => {
  test('is replaced when it was killed from outside', async () => {
    const one = previewer();
    for (let round = 0; round < 3; round += 1) {
      const pid = await pidOf(one);
      process.kill(pid, 'SIGKILL');
      expect(await pidOf(one)).not.toBe(pid);
    }
  });

  test('ends when idle, and comes back', async () => {
    const one = previewer({ idleMs: 100 });
    const pid = await pidOf(one);
    expect(await gone(pid)).toBe(true);
    expect(await pidOf(one)).not.toBe(pid);
  });

  test('knows nothing of our environment', async () => {
    if (process.platform !== 'linux') return;
    const names = readFileSync(`/proc/${await pidOf(previewer())}/environ`, 'utf8')
      .split('\0')
      .map((entry) => entry.split('=')[0]);
    const allowed = ['NODE_CHANNEL_FD', 'NODE_CHANNEL_SERIALIZATION_MODE', ''];
    expect(names.filter((name) => !allowed.includes(name ?? ''))).toEqual([]);
  });

  test.each(['comes to its end', 'is killed'])('ends when its parent %s', async (end) => {
    const program = `
      import { ImagePreviewer } from ${JSON.stringify(new URL('./preview-process.ts', import.meta.url))};
      const previewer = new ImagePreviewer(${JSON.stringify(usual)});
      const png = Buffer.from('${small.toString('base64')}', 'base64');
      await previewer.makeWebp(async () => png, 64, new AbortController().signal);
      process.stdout.write(String(previewer.childPid));
      ${end === 'is killed' ? 'setInterval(() => undefined, 1000);' : ''}`;
    const args = ['--disable-warning=ExperimentalWarning', '--input-type=module', '-e', program];
    const parent = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    const exit = once(parent, 'exit');
    const [said] = await once(parent.stdout, 'data');
    const pid = Number(String(said));
    expect(pid).toBeGreaterThan(1);
    if (end === 'is killed') parent.kill('SIGKILL');
    expect(await exit).toEqual(end === 'is killed' ? [null, 'SIGKILL'] : [0, null]);
    expect(await gone(pid)).toBe(true);
  });
});
