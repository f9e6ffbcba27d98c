import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { AppError } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import type { AppendableStore } from './blob-store.ts';
import { blobKey } from './keys.ts';
import { stagedListingCases } from './staged-listing-cases.ts';
import {
  append,
  brokenBody,
  never,
  readAll,
  refuses,
  seal,
  sealed,
  slowWriter,
  staged,
  wrongChecksum,
} from './test-store.ts';

/** What lies in a store: sizes by staged id and by key, nothing else. */
export interface StoreState {
  staged: Record<string, number>;
  blobs: Record<string, number>;
}

/** A store of its own for one test. */
export interface StoreUnderTest {
  store: AppendableStore;
  /** What lies there, seen from outside; throws on anything that is neither content nor the marker. */
  state(): Promise<StoreState>;
  close(): Promise<void>;
}

const mebibyte = 1024 * 1024;
const empty: StoreState = { staged: {}, blobs: {} };

/** Every promise of AppendableStore as a case; each gives what must lie in the store when it is over. */
const cases: Record<string, (store: AppendableStore) => Promise<StoreState>> = {
  'staged content that nobody made is missing': async (store) => {
    expect(await store.stagedOffset(newId())).toBeNull();
    await refuses(append(store, newId(), 0, 'x'), 'not_found');
    expect(await store.seal(newId(), blobKey(newId()), async () => undefined)).toBe(false);
    return empty;
  },
  'staged content is made twice and is still empty': async (store) => {
    const id = await staged(store, '');
    await store.createStaged(id);
    expect(await store.stagedOffset(id)).toBe(0);
    return { ...empty, staged: { [id]: 0 } };
  },
  'making staged content again leaves what it holds': async (store) => {
    const id = await staged(store, 'abc');
    await store.createStaged(id);
    expect(await store.stagedOffset(id)).toBe(3);
    return { ...empty, staged: { [id]: 3 } };
  },
  'a body can make the content, whole or only its beginning, but once': async (store) => {
    const [whole, part] = [newId(), newId()];
    expect(await append(store, whole, 0, 'abc', { create: true, limit: 3 })).toBe(3);
    expect(await append(store, part, 0, 'ab', { create: true, limit: 3 })).toBe(2);
    await refuses(append(store, whole, 0, 'x', { create: true }), 'state_conflict');
    expect(await store.stagedOffset(whole)).toBe(3);
    expect(await append(store, part, 2, 'c', { limit: 3 })).toBe(3);
    expect(await store.seal(whole, blobKey(whole), async ({ size }) => expect(size).toBe(3))).toBe(true);
    return { staged: { [part]: 3 }, blobs: { [blobKey(whole)]: 3 } };
  },
  'a body that makes the content and breaks off, or is too long, keeps what arrived': async (store) => {
    const [broken, long] = [newId(), newId()];
    await refuses(append(store, broken, 0, brokenBody(Buffer.from('ab')), { create: true, limit: 3 }), 'unavailable');
    await refuses(append(store, long, 0, 'abcd', { create: true, limit: 3 }), 'payload_too_large');
    expect(await store.stagedOffset(broken)).toBe(2);
    expect(await store.stagedOffset(long)).toBe(3);
    return { ...empty, staged: { [broken]: 2, [long]: 3 } };
  },
  'appends follow each other and an empty one changes nothing': async (store) => {
    const id = await staged(store, 'abc');
    expect(await append(store, id, 3, '')).toBe(3);
    expect(await append(store, id, 3, 'defg')).toBe(7);
    const key = await seal(store, id);
    expect((await readAll(store, key, 0, 7)).toString()).toBe('abcdefg');
    return { ...empty, blobs: { [key]: 7 } };
  },
  ...Object.fromEntries([0, 1, mebibyte - 1, mebibyte, mebibyte + 1, 5 * mebibyte + 1].map((size) => sizeCase(size))),
  'a range is exact': async (store) => {
    const content = randomBytes(3 * mebibyte);
    const key = await sealed(store, content);
    for (const [start, end] of [
      [0, 1],
      [mebibyte - 1, mebibyte + 1],
      [7, 2 * mebibyte + 9],
      [9, 9],
    ] as const) {
      expect((await readAll(store, key, start, end)).equals(content.subarray(start, end))).toBe(true);
    }
    return { ...empty, blobs: { [key]: content.length } };
  },
  'a blob that is shorter than the range is told as missing': async (store) => {
    const key = await sealed(store, Buffer.from('abcdef'));
    await refuses(store.read(key, { start: 2, end: 100 }, never), 'not_found');
    return { ...empty, blobs: { [key]: 6 } };
  },
  'a missing blob is told as such': async (store) => {
    const key = blobKey(newId());
    expect(await store.stat(key)).toBeNull();
    await refuses(store.read(key, { start: 0, end: 1 }, never), 'not_found');
    return empty;
  },
  'a reader that goes away early, and one that is cancelled, give everything back': async (store) => {
    const key = await sealed(store, randomBytes(5 * mebibyte));
    const stream = await store.read(key, { start: 0, end: 5 * mebibyte }, never);
    for await (const piece of stream) {
      expect(piece.length).toBeGreaterThan(0);
      break;
    }
    expect(stream.destroyed).toBe(true);
    const cancel = new AbortController();
    const cancelled = readAll(store, key, 0, 5 * mebibyte, cancel.signal);
    cancel.abort();
    await refuses(cancelled, 'unavailable');
    return { ...empty, blobs: { [key]: 5 * mebibyte } };
  },
  'a reader that has begun goes on after the blob was removed': async (store) => {
    const content = randomBytes(3 * mebibyte);
    const key = await sealed(store, content);
    const stream = await store.read(key, { start: 0, end: content.length }, never);
    await store.delete(key);
    expect(Buffer.concat(await stream.toArray()).equals(content)).toBe(true);
    return empty;
  },
  'removing a blob twice is success': async (store) => {
    const key = await sealed(store, Buffer.from('x'));
    await store.delete(key);
    await store.delete(key);
    expect(await store.stat(key)).toBeNull();
    return empty;
  },
  'discarding staged content twice is success': async (store) => {
    const id = await staged(store, 'abc');
    await store.discard(id);
    await store.discard(id);
    expect(await store.stagedOffset(id)).toBeNull();
    return empty;
  },
  'an offset that is not the current one is refused with the current one': async (store) => {
    const id = await staged(store, 'abc');
    for (const offset of [0, 2, 4]) {
      const refusal = await refuses(append(store, id, offset, 'x'), 'offset_conflict');
      expect(refusal.members).toEqual({ offset: 3 });
    }
    return { ...empty, staged: { [id]: 3 } };
  },
  'a refusal leaves the body readable': async (store) => {
    const id = await staged(store, 'abc');
    const body = Readable.from([Buffer.from('xyz')]);
    await refuses(append(store, id, 0, body), 'offset_conflict');
    expect(Buffer.concat(await body.toArray()).toString()).toBe('xyz');
    return { ...empty, staged: { [id]: 3 } };
  },
  'a body that is too long fills the content up to its limit and is not destroyed': async (store) => {
    const id = await staged(store, 'abc');
    const body = Readable.from([Buffer.from('de'), Buffer.from('fgh')]);
    await refuses(append(store, id, 3, body, { limit: 6 }), 'payload_too_large');
    expect(body.destroyed && !body.readableEnded).toBe(false);
    expect(await store.stagedOffset(id)).toBe(6);
    await refuses(append(store, id, 6, 'i', { limit: 6 }), 'payload_too_large');
    expect(await append(store, id, 6, '', { limit: 6 })).toBe(6);
    return { ...empty, staged: { [id]: 6 } };
  },
  'a right checksum lets a body count': async (store) => {
    const id = await staged(store, 'abc');
    const body = randomBytes(2 * mebibyte + 5);
    for (const algorithm of ['sha1', 'sha256'] as const) {
      const offset = (await store.stagedOffset(id)) ?? 0;
      const checksum = { algorithm, digest: createHash(algorithm).update(body).digest() };
      expect(await append(store, id, offset, body, { checksum })).toBe(offset + body.length);
    }
    return { ...empty, staged: { [id]: 3 + 2 * body.length } };
  },
  'a wrong checksum leaves the content as it was': async (store) => {
    const id = await staged(store, 'abc');
    const refusal = append(store, id, 3, randomBytes(3 * mebibyte), { checksum: wrongChecksum });
    await refuses(refusal, 'chunk_checksum_mismatch');
    expect(await store.stagedOffset(id)).toBe(3);
    return { ...empty, staged: { [id]: 3 } };
  },
  'a body with a checksum that is too long counts for nothing': async (store) => {
    const id = await staged(store, 'abc');
    await refuses(append(store, id, 3, 'defg', { checksum: wrongChecksum, limit: 5 }), 'payload_too_large');
    return { ...empty, staged: { [id]: 3 } };
  },
  'what arrived of a body that broke off is kept': async (store) => {
    const id = await staged(store, 'abc');
    await refuses(append(store, id, 3, brokenBody(randomBytes(2 * mebibyte + 7))), 'unavailable');
    expect(await store.stagedOffset(id)).toBe(3 + 2 * mebibyte + 7);
    return { ...empty, staged: { [id]: 3 + 2 * mebibyte + 7 } };
  },
  'nothing of a body with a checksum that broke off is kept': async (store) => {
    const id = await staged(store, 'abc');
    const body = brokenBody(randomBytes(2 * mebibyte + 7));
    await refuses(append(store, id, 3, body, { checksum: wrongChecksum }), 'unavailable');
    expect(await store.stagedOffset(id)).toBe(3);
    return { ...empty, staged: { [id]: 3 } };
  },
  'a cancelled append keeps what arrived': async (store) => {
    const id = await staged(store, '');
    const cancel = new AbortController();
    const writer = slowWriter(store, id, 0, 1n, {}, cancel.signal);
    await writer.send('abcd');
    cancel.abort();
    await refuses(writer.result, 'unavailable');
    expect(await store.stagedOffset(id)).toBe(4);
    return { ...empty, staged: { [id]: 4 } };
  },
  'a writer with a higher fence stops one with a lower fence, whose bytes stay': async (store) => {
    const id = await staged(store, '');
    const older = slowWriter(store, id, 0, 1n);
    await older.send('abcd');
    await refuses(append(store, id, 4, 'x', { fence: 1n }), 'locked');
    await refuses(append(store, id, 4, 'x', { fence: 0n }), 'locked');
    const newer = append(store, id, 4, 'ef', { fence: 2n });
    await refuses(older.result, 'locked');
    expect(await newer).toBe(6);
    return { ...empty, staged: { [id]: 6 } };
  },
  'of many writers at once all bytes come from one at a time': async (store) => {
    const id = await staged(store, '');
    const writers = [1n, 2n, 3n, 4n, 5n].map((fence) =>
      append(store, id, 0, Buffer.alloc(999, Number(fence)), { fence }),
    );
    const results = await Promise.allSettled(writers);
    const won = results.filter((result) => result.status === 'fulfilled');
    const size = (await store.stagedOffset(id)) ?? 0;
    expect(won.length).toBeLessThanOrEqual(1);
    const key = await seal(store, id);
    expect(new Set(await readAll(store, key, 0, size)).size).toBeLessThanOrEqual(1);
    return { ...empty, blobs: { [key]: size } };
  },
  'the offset can be asked for while a body arrives': async (store) => {
    const id = await staged(store, 'abc');
    const writer = slowWriter(store, id, 3, 1n);
    await writer.send(randomBytes(mebibyte));
    const seen = await store.stagedOffset(id);
    expect([3, 3 + mebibyte]).toContain(seen);
    writer.end();
    expect(await writer.result).toBe(3 + mebibyte);
    return { ...empty, staged: { [id]: 3 + mebibyte } };
  },
  'while a body with a checksum arrives the offset is where it began': async (store) => {
    const id = await staged(store, 'abc');
    const writer = slowWriter(store, id, 3, 1n, { checksum: wrongChecksum });
    await writer.send(randomBytes(3 * mebibyte));
    expect(await store.stagedOffset(id)).toBe(3);
    writer.end();
    await refuses(writer.result, 'chunk_checksum_mismatch');
    return { ...empty, staged: { [id]: 3 } };
  },
  'discarding stops a writer': async (store) => {
    const id = await staged(store, '');
    const writer = slowWriter(store, id, 0, 1n);
    await writer.send('abcd');
    await store.discard(id);
    await refuses(writer.result, 'locked');
    return empty;
  },
  'sealing stops a writer and seals what counts': async (store) => {
    const id = await staged(store, '');
    const writer = slowWriter(store, id, 0, 1n);
    await writer.send('abcd');
    const key = await seal(store, id);
    await refuses(writer.result, 'locked');
    expect((await readAll(store, key, 0, 4)).toString()).toBe('abcd');
    return { ...empty, blobs: { [key]: 4 } };
  },
  'a seal whose check fails moves nothing, and can be repeated': async (store) => {
    const id = await staged(store, 'abc');
    const key = blobKey(newId());
    const refusal = store.seal(id, key, async () => {
      throw new AppError('checksum_mismatch', 'no');
    });
    await refuses(refusal, 'checksum_mismatch');
    expect(await store.stat(key)).toBeNull();
    expect(await store.seal(id, key, async () => undefined)).toBe(true);
    expect(await store.seal(id, key, async () => undefined)).toBe(false);
    return { ...empty, blobs: { [key]: 3 } };
  },
  'the check of a seal sees size and bytes, and keeps writers out': async (store) => {
    const id = await staged(store, 'abc');
    const key = blobKey(newId());
    await store.seal(id, key, async (content) => {
      expect(content.size).toBe(3);
      expect(Buffer.concat(await (await content.read(never)).toArray()).toString()).toBe('abc');
      expect(await store.stagedOffset(id)).toBe(3);
      await refuses(append(store, id, 3, 'd'), 'locked');
    });
    return { ...empty, blobs: { [key]: 3 } };
  },
  'content that is discarded while its seal reads it is not sealed': async (store) => {
    const id = await staged(store, 'abc');
    const key = blobKey(newId());
    let discarding: Promise<void> = Promise.resolve();
    const sealing = store.seal(id, key, async (_content, signal) => {
      discarding = store.discard(id);
      if (!signal.aborted) await once(signal, 'abort');
    });
    await refuses(sealing, 'locked');
    await discarding;
    expect(await store.stat(key)).toBeNull();
    return empty;
  },
  'odd keys and ids are refused': async (store) => {
    const id = newId();
    const odd = [
      '',
      '.',
      '..',
      '../x',
      '/etc/passwd',
      'a/b',
      `${id}/..`,
      `${id}\0`,
      id.toUpperCase(),
      '%2e%2e',
      `${id}\n`,
    ];
    for (const text of odd) {
      await refuses(store.createStaged(text), 'validation_failed');
      await refuses(store.stagedOffset(text), 'validation_failed');
      await refuses(append(store, text, 0, 'x'), 'validation_failed');
      await refuses(store.discard(text), 'validation_failed');
      await refuses(
        store.seal(text, blobKey(id), async () => undefined),
        'validation_failed',
      );
    }
    const wrongFolder = `blobs/${id.endsWith('00') ? '01' : '00'}/${id}`;
    const oddKeys = [
      ...odd,
      id,
      `blobs/${id}`,
      `blobs//${id}`,
      `blobs/../${id}`,
      wrongFolder,
      `${blobKey(id)}/`,
      `x/${blobKey(id)}`,
    ];
    for (const key of oddKeys) {
      await refuses(store.stat(key), 'validation_failed');
      await refuses(store.read(key, { start: 0, end: 1 }, never), 'validation_failed');
      await refuses(store.delete(key), 'validation_failed');
      await refuses(
        store.seal(id, key, async () => undefined),
        'validation_failed',
      );
    }
    return empty;
  },
  ...stagedListingCases,
  'free space is told in bytes': async (store) => {
    expect(await store.freeBytes(1)).toBeGreaterThan(0);
    return empty;
  },
};

/** Runs every case against a store that `open` makes for it. */
export function describeAppendableStore(name: string, open: () => Promise<StoreUnderTest>): void {
  describe(`${name} keeps what an appendable store promises`, () => {
    let subject: StoreUnderTest;

    beforeEach(async () => {
      subject = await open();
    });

    afterEach(async () => {
      await subject.close();
    });

    for (const [title, run] of Object.entries(cases)) {
      test(title, async () => {
        const expected = await run(subject.store);
        expect(await subject.state()).toEqual(expected);
      });
    }
  });
}

function sizeCase(size: number): [string, (store: AppendableStore) => Promise<StoreState>] {
  return [
    `${size} bytes come back as they were`,
    async (store) => {
      const content = randomBytes(size);
      const key = await sealed(store, content);
      expect(await store.stat(key)).toEqual({ size });
      expect((await readAll(store, key, 0, size)).equals(content)).toBe(true);
      return { staged: {}, blobs: { [key]: size } };
    },
  ];
}
