import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { mkdir, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Readable } from 'node:stream';
import { AppError, unavailable } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import { blobStoreSuite } from '../blob-store-suite.ts';
import type { AppendableStore, BlobStore } from '../blob-store.ts';
import { describeAppendableStore } from '../conformance.ts';
import type { StoreState } from '../conformance.ts';
import { markerName } from '../identity-marker.ts';
import { blobKey } from '../keys.ts';
import { LocalDirectory } from '../local-directory.ts';
import { refusal } from '../store-refusal.ts';
import { seededContent, writeContent } from '../test-content.ts';
import { append, brokenBody, never, readAll, refuses, slowWriter } from '../test-store.ts';
import { CircuitBreaker } from './circuit-breaker.ts';
import { ConcurrencyLimit } from './concurrency-limit.ts';
import { guardAppendableStore, guardStore, usualGuard } from './guard-store.ts';
import { measure } from './measure.ts';
import type { CallRecorder } from './measure.ts';
import { retry } from './retry.ts';
import { WrappedAppendableStore } from './wrapped-appendable-store.ts';
import { WrappedStore } from './wrapped-store.ts';
import type { StoreCall, Wrapper } from './wrapped-store.ts';

const unmeasured: Wrapper = { around: (call) => call.run() };

const hasty = { attempts: 3, baseMs: 1, capMs: 2 };
const key = blobKey(newId());

/** Innermost: has calls fail, wait or go wrong as a test says, and counts those that were made. */
class Trouble implements Wrapper {
  calls = 0;
  behave: () => Promise<void> = async () => undefined;

  async around<R>(call: StoreCall<R>): Promise<R> {
    this.calls += 1;
    await this.behave();
    return call.run();
  }

  fail(error: () => Error, times = Infinity): void {
    let left = times;
    this.behave = async () => {
      left -= 1;
      if (left >= 0) throw error();
    };
  }
}

async function openLocal(root: string): Promise<AppendableStore> {
  const store = await LocalDirectory.open(root);
  await store.prepare();
  return store;
}

async function filesIn(root: string): Promise<Record<string, number>> {
  const sizes: Record<string, number> = {};
  for (const entry of await readdir(root, { recursive: true, withFileTypes: true })) {
    const file = path.join(entry.parentPath, entry.name);
    if (entry.isFile() && entry.name !== markerName) sizes[path.relative(root, file)] = (await stat(file)).size;
  }
  return sizes;
}

describeAppendableStore('a guarded store', async () => {
  const root = await mkdtemp(path.join(tmpdir(), 'stowage-store-'));
  return {
    store: guardAppendableStore(await openLocal(root), unmeasured),
    state: async () => {
      const state: StoreState = { staged: {}, blobs: {} };
      for (const [file, size] of Object.entries(await filesIn(root))) {
        if (file.startsWith('staging/')) state.staged[path.basename(file)] = size;
        else state.blobs[file] = size;
      }
      return state;
    },
    close: () => rm(root, { recursive: true }),
  };
});

blobStoreSuite('a guarded store', async () => {
  const root = await mkdtemp(path.join(tmpdir(), 'stowage-store-'));
  const plant = async (name: string, content: Buffer): Promise<void> => {
    await mkdir(path.dirname(path.join(root, name)), { recursive: true });
    await writeFile(path.join(root, name), content);
  };
  return {
    store: guardStore(await openLocal(root), unmeasured),
    state: () => filesIn(root),
    plant,
    unplant: (name) => rm(path.join(root, name)),
    killWriter: (blob) => plant(`${blob}.1.tmp`, Buffer.from('half')),
    close: () => rm(root, { recursive: true }),
  };
});

describe('around a store', () => {
  let root: string;
  let local: BlobStore;
  let trouble: Trouble;

  beforeEach(async () => {
    root = await mkdtemp(path.join(tmpdir(), 'stowage-store-'));
    local = await openLocal(root);
    trouble = new Trouble();
  });

  afterEach(() => rm(root, { recursive: true }));

  const within = (...wrappers: Wrapper[]): BlobStore => new WrappedStore(local, [...wrappers, trouble]);
  const down = (): Error => unavailable('down');

  test('a call that fails now and then is made again, three times at most', async () => {
    const store = within(retry(hasty));
    trouble.fail(down, 2);
    expect(await store.stat(key)).toBeNull();
    trouble.fail(down, 3);
    await refuses(store.stat(key), 'unavailable');
    expect(trouble.calls).toBe(6);
  });

  test('the waits between tries are of random length', async () => {
    const asked: number[] = [];
    const random = (): number => asked.push(0) && 0;
    trouble.fail(down);
    await refuses(within(retry({ attempts: 4, baseMs: 1e6, capMs: 1e9 }, random)).stat(key), 'unavailable');
    expect(asked).toHaveLength(3);
  });

  test('what was refused, not found or cancelled is not tried again', async () => {
    const store = within(retry({ attempts: 3, baseMs: 1e6, capMs: 1e6 }));
    for (const error of [refusal('wrong keys', '403'), new AppError('not_found', 'no')]) {
      trouble.fail(() => error);
      await expect(store.read(key, { start: 0, end: 1 }, never)).rejects.toBe(error);
    }
    expect(trouble.calls).toBe(2);
    trouble.fail(down);
    const cancel = new AbortController();
    const reading = store.read(key, { start: 0, end: 1 }, cancel.signal);
    cancel.abort();
    await refuses(reading, 'unavailable');
    expect(trouble.calls).toBe(3);
  });

  test('a write is not tried again, as its body is gone', async () => {
    trouble.fail(down);
    await refuses(writeContent(within(retry(hasty)), key, seededContent(1, 1)), 'unavailable');
    expect(trouble.calls).toBe(1);
  });

  test('no more calls than the limit are under way, and all get their turn', async () => {
    const store = within(new ConcurrencyLimit({ most: 3, waitMs: 60_000 }));
    let running = 0;
    let most = 0;
    trouble.behave = async () => {
      running += 1;
      most = Math.max(most, running);
      await new Promise((resolve) => setImmediate(resolve));
      running -= 1;
    };
    await Promise.all(Array.from({ length: 50 }, () => store.stat(key)));
    expect(most).toBe(3);
    expect(trouble.calls).toBe(50);
  });

  test('who waits too long, or is cancelled, leaves the row and takes no place', async () => {
    const store = within(new ConcurrencyLimit({ most: 1, waitMs: 20 }));
    const gate = Promise.withResolvers<void>();
    trouble.behave = () => gate.promise;
    const first = store.stat(key);
    await refuses(store.stat(key), 'unavailable');
    const cancel = new AbortController();
    const second = store.read(key, { start: 0, end: 1 }, cancel.signal);
    cancel.abort();
    await refuses(second, 'unavailable');
    await refuses(store.read(key, { start: 0, end: 1 }, cancel.signal), 'unavailable');
    expect(trouble.calls).toBe(1);
    gate.resolve();
    await first;
    expect(await store.stat(key)).toBeNull();
  });

  test('a failing call gives its place back', async () => {
    const store = within(new ConcurrencyLimit({ most: 1, waitMs: 60_000 }));
    trouble.fail(down, 5);
    for (let time = 0; time < 5; time += 1) await refuses(store.stat(key), 'unavailable');
    expect(await store.stat(key)).toBeNull();
  });

  test('after some failures in a row the backend is left alone, then tried by one call', async () => {
    let now = 1;
    const store = within(new CircuitBreaker({ failures: 3, openMs: 1_000, patienceMs: 2_000 }, () => now));
    trouble.fail(down);
    for (let time = 0; time < 20; time += 1) await refuses(store.stat(key), 'unavailable');
    expect(trouble.calls).toBe(3);
    now += 1_000;
    for (let time = 0; time < 20; time += 1) await refuses(store.stat(key), 'unavailable');
    expect(trouble.calls).toBe(4);
    now += 1_000;
    trouble.behave = async () => undefined;
    for (let time = 0; time < 20; time += 1) expect(await store.stat(key)).toBeNull();
    expect(trouble.calls).toBe(24);
  });

  test('a look at the marker is always let through, and its success ends the rest', async () => {
    const store = within(new CircuitBreaker({ failures: 1, openMs: 1e9, patienceMs: 2_000 }));
    trouble.fail(down, 2);
    await refuses(store.stat(key), 'unavailable');
    await refuses(store.identity(), 'unavailable');
    expect(await store.identity()).toBeNull();
    expect(await store.stat(key)).toBeNull();
  });

  test('what a caller does wrong, and a missing blob, are no failures of the backend', async () => {
    const store = within(new CircuitBreaker({ failures: 1, openMs: 1e9, patienceMs: 2_000 }));
    const content = seededContent(100, 1);
    await refuses(store.write(key, content, brokenBody(content.slice(0, 100)), never), 'unavailable');
    await refuses(store.write(key, content, content.body(), AbortSignal.abort()), 'unavailable');
    await refuses(store.write(key, { ...content, size: 99 }, content.body(), never), 'upload_incomplete');
    await refuses(store.read(key, { start: 0, end: 1 }, never), 'not_found');
    await writeContent(store, key, content);
    const cancel = new AbortController();
    const stream = await store.read(key, { start: 0, end: 100 }, cancel.signal);
    cancel.abort();
    await refuses(stream.toArray(), 'unavailable');
    (await store.read(key, { start: 0, end: 100 }, never)).destroy();
    expect((await readAll(store, key, 0, 100)).equals(content.slice(0, 100))).toBe(true);
  });

  test('a caller that gave up after a long wait for an answer makes it a failure', async () => {
    let now = 1;
    const store = within(new CircuitBreaker({ failures: 1, openMs: 1e9, patienceMs: 2_000 }, () => now));
    for (const waitedMs of [1_999, 2_000]) {
      const cancel = new AbortController();
      trouble.behave = async () => {
        now += waitedMs;
        cancel.abort();
        throw unavailable('cancelled');
      };
      await refuses(store.read(key, { start: 0, end: 1 }, cancel.signal), 'unavailable');
    }
    trouble.behave = async () => undefined;
    await refuses(store.stat(key), 'unavailable');
    expect(trouble.calls).toBe(2);
  });

  test('an upload whose client is slow, or goes away, holds up nobody and is no failure', async () => {
    const store = new WrappedAppendableStore(await openLocal(root), [
      new ConcurrencyLimit({ most: 1, waitMs: 1 }),
      new CircuitBreaker({ failures: 1, openMs: 1e9, patienceMs: 2_000 }),
    ]);
    const id = newId();
    await store.createStaged(id);
    const writer = slowWriter(store, id, 0, 1n);
    await writer.send('abc');
    expect(await store.stat(key)).toBeNull();
    writer.end();
    await writer.result;
    await refuses(append(store, id, 3, brokenBody(Buffer.from('def'))), 'unavailable');
    await refuses(
      store.seal(id, key, async () => {
        throw unavailable('not the store');
      }),
      'unavailable',
    );
    expect(await store.stagedOffset(id)).toBe(6);
  });

  test('a stream that breaks is a failure', async () => {
    const breaking: Wrapper = {
      around: async (call) => {
        const result = await call.run();
        if (result instanceof Readable) result.destroy(unavailable('broke'));
        return result;
      },
    };
    await writeContent(local, key, seededContent(100, 1));
    const store = within(new CircuitBreaker({ failures: 1, openMs: 1e9, patienceMs: 2_000 }), breaking);
    await refuses((await store.read(key, { start: 0, end: 100 }, never)).toArray(), 'unavailable');
    await refuses(store.stat(key), 'unavailable');
    expect(trouble.calls).toBe(1);
  });

  test('in the usual order an open circuit is told at once, and every call that was made is measured', async () => {
    const measured: string[] = [];
    const options = { ...usualGuard, retry: hasty, breaker: { failures: 4, openMs: 1e9, patienceMs: 2_000 } };
    const record: CallRecorder = ({ operation, outcome }) => measured.push(`${operation} ${outcome}`);
    const store = guardStore(within(), measure(newId(), record), options);
    expect(await store.stat(key)).toBeNull();
    trouble.fail(down);
    for (let time = 0; time < 5; time += 1) await refuses(store.stat(key), 'unavailable');
    expect(measured).toEqual(['stat ok', ...Array.from({ length: 4 }, () => 'stat unavailable')]);
  });
});
