import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { Readable } from 'node:stream';
import { AppError } from '@stowage/common/errors';
import { exportKey } from '@stowage/common/export-key';
import { newId } from '@stowage/common/ids';
import type { BlobStore, ListedBlob } from './blob-store.ts';
import { blobKey } from './keys.ts';
import { digestOfBlob, heldBody, seededContent, writeContent } from './test-content.ts';
import type { TestContent } from './test-content.ts';
import { brokenBody, never, readAll, refuses } from './test-store.ts';

/** A store of its own for one test, prepared, empty and without a marker. */
export interface BlobStoreUnderTest {
  store: BlobStore;
  /** The sizes of what lies there by key, seen from outside; throws on anything else but the marker. */
  state(): Promise<Record<string, number>>;
  /** Lays down, from outside, an object that Stowage did not write: `path` is relative to the root of the store. */
  plant(path: string, content: Buffer): Promise<void>;
  /** Removes what was planted. */
  unplant(path: string): Promise<void>;
  /** Leaves what a writer of `key` leaves that was killed in the middle. */
  killWriter(key: string): Promise<void>;
  close(): Promise<void>;
}

type Case = (subject: BlobStoreUnderTest) => Promise<Record<string, number>>;

const mebibyte = 1024 * 1024;
const sizes = [0, 1, 5 * mebibyte - 1, 5 * mebibyte, 5 * mebibyte + 1, 64 * mebibyte + 1];

/** Every promise of BlobStore as a case; each gives what must lie in the store when it is over. */
const cases: Record<string, Case> = {
  ...Object.fromEntries(sizes.map((size) => [`${size} bytes come back as they were`, sizeCase(size)])),
  'a range is exact': async ({ store }) => {
    const content = seededContent(3 * mebibyte, 1);
    const key = await written(store, content);
    for (const [start, end] of [
      [0, 1],
      [mebibyte - 1, mebibyte + 1],
      [7, 2 * mebibyte + 9],
      [content.size - 1, content.size],
      [9, 9],
      [content.size, content.size],
    ] as const) {
      expect((await readAll(store, key, start, end)).equals(content.slice(start, end))).toBe(true);
    }
    return { [key]: content.size };
  },
  'a blob that is shorter than the range is told as missing': async ({ store }) => {
    const key = await written(store, seededContent(6, 1));
    for (const [start, end] of [
      [2, 100],
      [6, 7],
      [50, 100],
      [7, 7],
    ] as const)
      await refuses(store.read(key, { start, end }, never), 'not_found');
    return { [key]: 6 };
  },
  'a blob of another size than the reader knows is told as missing or as another one': async ({ store }) => {
    const key = await written(store, seededContent(6, 1));
    const empty = await written(store, seededContent(0, 1));
    await refuses(store.read(key, { start: 0, end: 6, of: 7 }, never), 'not_found');
    await refuses(store.read(key, { start: 0, end: 5, of: 5 }, never), 'checksum_mismatch');
    await refuses(store.read(key, { start: 0, end: 0, of: 0 }, never), 'checksum_mismatch');
    for (const [blob, size] of [
      [key, 6],
      [empty, 0],
    ] as const) {
      const whole = await store.read(blob, { start: 0, end: size, of: size }, never);
      expect(Buffer.concat(await whole.toArray())).toHaveLength(size);
    }
    return { [key]: 6, [empty]: 0 };
  },
  'a missing blob is told as such': async ({ store }) => {
    const key = blobKey(newId());
    expect(await store.stat(key)).toBeNull();
    await refuses(store.read(key, { start: 0, end: 1 }, never), 'not_found');
    await refuses(store.read(key, { start: 0, end: 0 }, never), 'not_found');
    return {};
  },
  'a reader that goes away early, and one that is cancelled, give everything back': async ({ store }) => {
    const content = seededContent(5 * mebibyte, 1);
    const key = await written(store, content);
    for (let round = 0; round < 20; round += 1) {
      const stream = await store.read(key, { start: 0, end: content.size }, never);
      for await (const piece of stream) {
        expect(piece.length).toBeGreaterThan(0);
        break;
      }
      expect(stream.destroyed).toBe(true);
    }
    const cancel = new AbortController();
    const cancelled = readAll(store, key, 0, content.size, cancel.signal);
    cancel.abort();
    await refuses(cancelled, 'unavailable');
    const reason = new AppError('locked', 'for a reason');
    const late = new AbortController();
    const stream = await store.read(key, { start: 0, end: content.size }, late.signal);
    late.abort(reason);
    await refuses(stream.toArray(), 'locked');
    return { [key]: content.size };
  },
  'a read that is cancelled before anybody listens to it harms nobody': async ({ store }) => {
    const content = seededContent(5, 1);
    const key = await written(store, content);
    const stream = await store.read(key, { start: 0, end: content.size }, AbortSignal.abort()).catch(() => null);
    // No listener of ours for its error: without one of its own it would end the process.
    await new Promise<void>((resolve) => {
      if (!stream || stream.closed) resolve();
      else stream.once('close', resolve);
    });
    return { [key]: content.size };
  },
  'a blob is not there before it is whole': async ({ store }) => {
    const content = seededContent(6 * mebibyte, 1);
    const key = blobKey(newId());
    const held = heldBody([content.slice(0, content.size - 1)]);
    const writing = store.write(key, content, held.body, never);
    await held.waiting;
    expect(await store.stat(key)).toBeNull();
    await refuses(store.read(key, { start: 0, end: 1 }, never), 'not_found');
    expect(await listed(store, 10)).toEqual([]);
    held.end(content.slice(content.size - 1, content.size));
    await writing;
    expect((await readAll(store, key, 0, content.size)).equals(content.slice(0, content.size))).toBe(true);
    return { [key]: content.size };
  },
  'a blob that is written again is replaced as a whole, and not before': async ({ store }) => {
    const before = seededContent(2 * mebibyte, 1);
    const after = seededContent(mebibyte, 2);
    const key = await written(store, before);
    const held = heldBody([after.slice(0, 10)]);
    const writing = store.write(key, after, held.body, never);
    await held.waiting;
    expect((await digestOfBlob(store, key, 0, before.size)).equals(before.sha256)).toBe(true);
    held.end(after.slice(10, after.size));
    await writing;
    expect(await store.stat(key)).toEqual({ size: after.size });
    expect((await digestOfBlob(store, key, 0, after.size)).equals(after.sha256)).toBe(true);
    return { [key]: after.size };
  },
  'a body with a wrong sha256 leaves nothing, whatever its size': async ({ store }) => {
    for (const size of sizes) {
      const key = blobKey(newId());
      const content = { size, sha256: Buffer.alloc(32) };
      await refuses(store.write(key, content, seededContent(size, 3).body(), never), 'checksum_mismatch');
      expect(await store.stat(key)).toBeNull();
    }
    return {};
  },
  'a body that is shorter or longer than it should be leaves nothing': async ({ store }) => {
    for (const size of [1, mebibyte, 5 * mebibyte + 1, 64 * mebibyte + 1]) {
      const { sha256, body } = seededContent(size, 3);
      for (const wrong of [size - 1, size + 1]) {
        await refuses(store.write(blobKey(newId()), { size: wrong, sha256 }, body(), never), 'upload_incomplete');
      }
    }
    return {};
  },
  'a body that breaks off leaves nothing, and an AppError of it is thrown on': async ({ store }) => {
    const content = seededContent(6 * mebibyte, 1);
    const whole = content.slice(0, content.size);
    await refuses(store.write(blobKey(newId()), content, brokenBody(whole), never), 'unavailable');
    await refuses(store.write(blobKey(newId()), content, brokenBody(whole.subarray(0, 20)), never), 'unavailable');
    const body = new Readable({ read: () => body.destroy(new AppError('gone', 'not there any more')) });
    await refuses(store.write(blobKey(newId()), content, body, never), 'gone');
    return {};
  },
  'a failed write of a blob that is there leaves it as it was': async ({ store }) => {
    const content = seededContent(mebibyte, 1);
    const key = await written(store, content);
    const other = seededContent(2 * mebibyte, 2);
    await refuses(store.write(key, { ...other, sha256: content.sha256 }, other.body(), never), 'checksum_mismatch');
    await refuses(store.write(key, other, brokenBody(other.slice(0, other.size)), never), 'unavailable');
    expect((await digestOfBlob(store, key, 0, content.size)).equals(content.sha256)).toBe(true);
    return { [key]: content.size };
  },
  'a cancelled write leaves nothing, and its body as it stands': async ({ store }) => {
    for (const size of [6 * mebibyte, 64 * mebibyte + 2]) {
      const content = seededContent(size, 1);
      const cancel = new AbortController();
      const held = heldBody([content.slice(0, size - 1)]);
      const writing = store.write(blobKey(newId()), content, held.body, cancel.signal);
      await held.waiting;
      cancel.abort();
      await refuses(writing, 'unavailable');
      expect(held.body.destroyed).toBe(false);
    }
    const late = AbortSignal.abort(new AppError('locked', 'for a reason'));
    const content = seededContent(10, 1);
    await refuses(store.write(blobKey(newId()), content, content.body(), late), 'locked');
    return {};
  },
  'the pieces of a body stay what they were': async ({ store }) => {
    const content = seededContent(3 * mebibyte, 1);
    const pieces = Array.from({ length: 3 }, (_, at) => content.slice(at * mebibyte, (at + 1) * mebibyte));
    const key = blobKey(newId());
    await store.write(key, content, Readable.from(pieces), never);
    expect(Buffer.concat(pieces).equals(content.slice(0, content.size))).toBe(true);
    return { [key]: content.size };
  },
  'of two writers of one blob either is there, as a whole': async ({ store }) => {
    const contents = [seededContent(6 * mebibyte, 1), seededContent(5 * mebibyte, 2)];
    const key = blobKey(newId());
    await Promise.all(contents.map((content) => writeContent(store, key, content)));
    const size = (await store.stat(key))?.size ?? 0;
    const digest = await digestOfBlob(store, key, 0, size);
    expect(contents.some((content) => content.size === size && content.sha256.equals(digest))).toBe(true);
    return { [key]: size };
  },
  'a writer that fails takes nothing from another of the same blob': async ({ store }) => {
    const content = seededContent(5 * mebibyte, 1);
    const key = blobKey(newId());
    const broken = brokenBody(content.slice(0, content.size));
    await Promise.all([
      writeContent(store, key, content),
      refuses(store.write(key, content, broken, never), 'unavailable'),
    ]);
    expect((await digestOfBlob(store, key, 0, content.size)).equals(content.sha256)).toBe(true);
    return { [key]: content.size };
  },
  'removing a blob twice is success': async ({ store }) => {
    const key = await written(store, seededContent(1, 1));
    await store.delete(key);
    await store.delete(key);
    expect(await store.stat(key)).toBeNull();
    return {};
  },
  'a listing in pages has every blob once, in the order of the keys': async ({ store }) => {
    expect(await store.list(null, 3)).toEqual({ blobs: [], next: null });
    const startedAt = Date.now();
    const expected: Record<string, number> = {};
    for (let size = 0; size < 20; size += 1) expected[await written(store, seededContent(size, 1))] = size;
    const all = await listed(store, 7);
    expect(Object.fromEntries(all.map(({ key, size }) => [key, size]))).toEqual(expected);
    expect(all.map(({ key }) => key)).toEqual(Object.keys(expected).sort());
    // Whole seconds, and another clock, are as good as a store has to be.
    for (const { modifiedAt } of all) expect(Math.abs(modifiedAt.getTime() - startedAt)).toBeLessThan(300_000);
    for (const limit of [1, 20, 1000]) expect(await listed(store, limit)).toEqual(all);
    return expected;
  },
  'a listing leaves out what is no blob': async ({ store, plant, unplant }) => {
    await store.claim(newId());
    const key = await written(store, seededContent(9, 1));
    const id = newId();
    const wrongFolder = `blobs/${id.endsWith('00') ? '01' : '00'}/${id}`;
    const foreign = ['readme.txt', 'blobs/readme.txt', 'blobs/aa/readme.txt', wrongFolder, `${key}.part`];
    for (const path of foreign) await plant(path, Buffer.from('x'));
    expect((await listed(store, 1)).map((blob) => blob.key)).toEqual([key]);
    expect((await listed(store, 100)).map((blob) => blob.key)).toEqual([key]);
    for (const path of foreign) await unplant(path);
    return { [key]: 9 };
  },
  'an export is kept as a blob is, and no listing tells of it': async ({ store }) => {
    const key = await written(store, seededContent(9, 1));
    const [before, after] = [seededContent(5, 2), seededContent(3 * mebibyte, 3)];
    const kept = exportKey(newId(), new Date());
    expect(await store.stat(kept)).toBeNull();
    for (const content of [before, after]) {
      await writeContent(store, kept, content);
      expect(await store.stat(kept)).toEqual({ size: content.size });
      expect((await digestOfBlob(store, kept, 0, content.size)).equals(content.sha256)).toBe(true);
    }
    expect(await store.sweep(new Date(Date.now() + 3_600_000))).toBe(0);
    await refuses(store.write(kept, { ...after, sha256: before.sha256 }, after.body(), never), 'checksum_mismatch');
    expect((await listed(store, 10)).map((blob) => blob.key)).toEqual([key]);
    for (let time = 0; time < 2; time += 1) await store.delete(kept);
    expect(await store.stat(kept)).toBeNull();
    await refuses(store.read(kept, { start: 0, end: 1 }, never), 'not_found');
    return { [key]: 9 };
  },
  'a place is claimed once, and again only by the same backend': async ({ store }) => {
    expect(await store.identity()).toBeNull();
    const backendId = newId();
    await store.claim(backendId);
    await store.claim(backendId);
    expect(await store.identity()).toBe(backendId);
    await refuses(store.claim(newId()), 'state_conflict');
    expect(await store.identity()).toBe(backendId);
    return {};
  },
  'of many that claim at once one wins': async ({ store }) => {
    const ids = Array.from({ length: 5 }, () => newId());
    const results = await Promise.allSettled(ids.map((id) => store.claim(id)));
    const winners = ids.filter((_, at) => results[at]?.status === 'fulfilled');
    expect(winners).toHaveLength(1);
    expect(await store.identity()).toBe(winners[0]);
    return {};
  },
  'a marker that says nothing is no identity, and is not overwritten': async ({ store, plant }) => {
    for (const text of ['', '{', '[]', '{"backend_id":7}', '{"backend_id":"../x"}', 'x'.repeat(100_000)]) {
      await plant('.stowage-backend.json', Buffer.from(text));
      expect(await store.identity()).toBeNull();
      await refuses(store.claim(newId()), 'state_conflict');
    }
    return {};
  },
  'what a killed writer left is swept when it is old enough, and only that': async ({ store, killWriter }) => {
    await store.claim(newId());
    const key = await written(store, seededContent(9, 1));
    const unfinished = blobKey(newId());
    await killWriter(unfinished);
    await killWriter(key);
    expect(await store.stat(unfinished)).toBeNull();
    expect((await listed(store, 10)).map((blob) => blob.key)).toEqual([key]);
    expect(await store.sweep(new Date(Date.now() - 3_600_000))).toBe(0);
    expect(await store.sweep(new Date(Date.now() + 3_600_000))).toBe(2);
    expect(await store.sweep(new Date(Date.now() + 3_600_000))).toBe(0);
    expect(await store.identity()).not.toBeNull();
    return { [key]: 9 };
  },
  'odd keys are refused': async ({ store }) => {
    const id = newId();
    const wrongFolder = `blobs/${id.endsWith('00') ? '01' : '00'}/${id}`;
    const odd = [
      '',
      '.',
      '..',
      '../x',
      '/etc/passwd',
      id,
      `blobs/${id}`,
      `blobs//${id}`,
      `blobs/../${id}`,
      wrongFolder,
    ];
    const kept = exportKey(id, new Date());
    odd.push('exports/', `exports/${id}`, `${kept}/`, `${kept}\n`, `x/${kept}`, kept.replace('exports', 'blobs'));
    for (const key of [...odd, `${blobKey(id)}/`, `${blobKey(id)}\n`, `x/${blobKey(id)}`, blobKey(id).toUpperCase()]) {
      await refuses(store.stat(key), 'validation_failed');
      await refuses(store.read(key, { start: 0, end: 1 }, never), 'validation_failed');
      await refuses(store.delete(key), 'validation_failed');
      const content = seededContent(1, 1);
      await refuses(store.write(key, content, content.body(), never), 'validation_failed');
    }
    return {};
  },
};

/** Runs every case against a store that `open` makes for it; `limitMs` is what the slowest may take. */
export function blobStoreSuite(name: string, open: () => Promise<BlobStoreUnderTest>, limitMs = 60_000): void {
  describe(`${name} keeps what a blob store promises`, () => {
    let subject: BlobStoreUnderTest;

    beforeEach(async () => {
      subject = await open();
    });

    afterEach(async () => {
      await subject.close();
    });

    for (const [title, run] of Object.entries(cases)) {
      test(
        title,
        async () => {
          const expected = await run(subject);
          expect(await subject.state()).toEqual(expected);
        },
        limitMs,
      );
    }
  });
}

function sizeCase(size: number): Case {
  return async ({ store }) => {
    const content = seededContent(size, size);
    const key = await written(store, content);
    expect(await store.stat(key)).toEqual({ size });
    expect((await digestOfBlob(store, key, 0, size)).equals(content.sha256)).toBe(true);
    const start = Math.max(0, size - mebibyte - 1);
    expect((await readAll(store, key, start, size)).equals(content.slice(start, size))).toBe(true);
    return { [key]: size };
  };
}

async function written(store: BlobStore, content: TestContent): Promise<string> {
  const key = blobKey(newId());
  await writeContent(store, key, content);
  return key;
}

/** All pages, one after the other. */
async function listed(store: BlobStore, limit: number): Promise<ListedBlob[]> {
  const all: ListedBlob[] = [];
  let cursor: string | null = null;
  do {
    const page = await store.list(cursor, limit);
    expect(page.blobs.length).toBeLessThanOrEqual(limit);
    all.push(...page.blobs);
    cursor = page.next;
  } while (cursor !== null);
  return all;
}
