import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Readable } from 'node:stream';
import { unavailable } from '@stowage/common/errors';
import { newId } from '@stowage/common/ids';
import { createLogger } from '@stowage/common/runtime/logger';
import { ContentDigest } from './content-digest.ts';
import { DigestCache } from './digest-cache.ts';
import { contentKey, Seals } from './seal-blob.ts';
import type { SealRequest } from './seal-blob.ts';
import type { Append, AppendableStore, StagedContent } from './stores/blob-store.ts';
import { blobKey } from './stores/keys.ts';
import { LocalDirectory } from './stores/local-directory.ts';
import { append, refuses } from './stores/test-store.ts';

const backendId = newId();
const logger = createLogger('test', 'silent');
const mebibyte = 1024 * 1024;

describe('sealing', () => {
  let root: string;
  let store: AppendableStore;
  let digests: DigestCache;
  let seals: Seals;
  let confirm: () => Promise<void>;

  beforeEach(async () => {
    root = await mkdtemp(path.join(tmpdir(), 'stowage-seal-'));
    confirm = async () => undefined;
    await restart();
  });

  afterEach(async () => {
    await rm(root, { recursive: true });
  });

  /** Everything in memory is lost. */
  async function restart(): Promise<void> {
    store = await LocalDirectory.open(root);
    await store.prepare();
    digests = new DigestCache();
    seals = sealsOver(store);
  }

  function sealsOver(used: AppendableStore): Seals {
    const backends = {
      useAppendable: <R>(_id: string, work: (its: AppendableStore) => Promise<R>) => work(used),
      confirm,
    };
    return new Seals({ backends, digests, logger });
  }

  async function add(
    id: string,
    offset: number,
    body: Buffer | Readable,
    options: Partial<Append> = {},
  ): Promise<number> {
    return append(store, id, offset, body, { observer: digests.observer(contentKey(backendId, id)), ...options });
  }

  async function staged(content: Buffer): Promise<string> {
    const id = newId();
    await store.createStaged(id);
    await add(id, 0, content);
    return id;
  }

  function request(stagedId: string, content: Buffer, options: Partial<SealRequest> = {}): SealRequest {
    return { backendId, stagedId, blobId: newId(), size: content.length, sha256: null, ...options };
  }

  /** As `store`, where another process seals the same just after this one has checked the content. */
  function overtakenBy(other: () => Promise<unknown>): AppendableStore {
    return Object.create(store, {
      stat: { value: (key: string) => store.stat(key) },
      read: { value: (...reading: Parameters<AppendableStore['read']>) => store.read(...reading) },
      seal: {
        value: (id: string, key: string, check: (content: StagedContent, signal: AbortSignal) => Promise<void>) =>
          store.seal(id, key, async (content, signal) => {
            await check(content, signal).finally(other);
          }),
      },
    });
  }

  test('content that another process seals at the same moment is sealed for both', async () => {
    const content = randomBytes(200_000);
    const id = await staged(content);
    const asked = request(id, content);
    const elsewhere = await LocalDirectory.open(root);
    const overtaken = sealsOver(overtakenBy(() => sealsOver(elsewhere).seal(asked, 10_000)));
    expect(await overtaken.seal(asked, 10_000)).toEqual(factsOf(content));
    expect(await readFile(path.join(root, blobKey(asked.blobId)))).toEqual(content);
  });

  test('a wrong sha256 is told as one of sealed content where another process has sealed it meanwhile', async () => {
    const content = randomBytes(200_000);
    const id = await staged(content);
    const asked = request(id, content);
    const elsewhere = await LocalDirectory.open(root);
    const overtaken = sealsOver(overtakenBy(() => sealsOver(elsewhere).seal(asked, 10_000)));
    const refused = overtaken.seal({ ...asked, sha256: randomBytes(32) }, 10_000);
    await expect(refused).rejects.toMatchObject({ code: 'checksum_mismatch', members: { sealed: true } });
  });

  test('content that was moved, but maybe not for good, is sealed once more or refused', async () => {
    const content = randomBytes(1_000);
    for (const settles of [true, false]) {
      const asked = request(await staged(content), content);
      let seals = 0;
      const seal: AppendableStore['seal'] = async (...sealing) => {
        seals += 1;
        if (seals > 1 && settles) return store.seal(...sealing);
        if (seals === 1) await store.seal(...sealing);
        throw unavailable('The folder can not be made durable.');
      };
      const failing = sealsOver(instead(store, { seal }));
      if (settles) expect(await failing.seal(asked, 10_000)).toEqual(factsOf(content));
      else await refuses(failing.seal(asked, 10_000), 'unavailable');
      expect(seals).toBe(2);
    }
  });

  test('gives sha256, sums and head, and the blob lies at its key', async () => {
    const content = randomBytes(2 * mebibyte + 9);
    const id = await staged(content);
    const asked = request(id, content, { sha256: createHash('sha256').update(content).digest() });
    expect(await seals.seal(asked, 10_000)).toEqual(factsOf(content));
    expect((await readFile(path.join(root, blobKey(asked.blobId)))).equals(content)).toBe(true);
    expect(await readdir(path.join(root, 'staging'))).toEqual([]);
  });

  test('empty content seals as any other', async () => {
    const id = newId();
    await store.createStaged(id);
    expect(await seals.seal(request(id, Buffer.alloc(0)), 10_000)).toEqual(factsOf(Buffer.alloc(0)));
  });

  test('again gives the same, at once or after a restart', async () => {
    const content = randomBytes(mebibyte + 1);
    const asked = request(await staged(content), content);
    const first = await seals.seal(asked, 10_000);
    expect(await seals.seal(asked, 10_000)).toEqual(first);
    await restart();
    expect(await seals.seal(asked, 10_000)).toEqual(first);
  });

  test('twice at the same moment is one seal', async () => {
    const content = randomBytes(mebibyte + 1);
    const asked = request(await staged(content), content);
    const results = await Promise.all([1, 2, 3, 4].map(() => seals.seal(asked, 10_000)));
    for (const result of results) expect(result).toEqual(factsOf(content));
  });

  test('without a digest in memory reads back and gives the same', async () => {
    const content = randomBytes(3 * mebibyte + 1);
    const id = await staged(content);
    await restart();
    expect(await seals.seal(request(id, content), 10_000)).toEqual(factsOf(content));
  });

  test('does not trust a digest that has seen another length', async () => {
    const content = randomBytes(mebibyte);
    const id = await staged(content);
    const wrong = new ContentDigest();
    wrong.update(Buffer.from('something else'));
    digests.keep(contentKey(backendId, id), wrong);
    expect(await seals.seal(request(id, content), 10_000)).toEqual(factsOf(content));
  });

  test('too early is refused with offset and length, and moves nothing', async () => {
    const content = randomBytes(100);
    const id = await staged(content);
    const refusal = await refuses(seals.seal(request(id, content, { size: 101 }), 10_000), 'upload_incomplete');
    expect(refusal.members).toEqual({ offset: 100, length: 101 });
    expect(await store.stagedOffset(id)).toBe(100);
  });

  test('with a wrong sha256 is refused, the content stays, and the right one seals it', async () => {
    const content = randomBytes(100);
    const asked = request(await staged(content), content, { sha256: Buffer.alloc(32) });
    await refuses(seals.seal(asked, 10_000), 'checksum_mismatch');
    expect(await store.stagedOffset(asked.stagedId)).toBe(100);
    expect(await seals.seal({ ...asked, sha256: null }, 10_000)).toEqual(factsOf(content));
    await refuses(seals.seal(asked, 10_000), 'checksum_mismatch');
  });

  test('what was never there, or was removed after its seal, is missing', async () => {
    const content = Buffer.from('abc');
    await refuses(seals.seal(request(newId(), content), 10_000), 'not_found');
    const asked = request(await staged(content), content);
    await seals.seal(asked, 10_000);
    await store.delete(blobKey(asked.blobId));
    await refuses(seals.seal(asked, 10_000), 'not_found');
  });

  test('that takes longer than the caller waits goes on, and asking again joins it', async () => {
    const content = randomBytes(mebibyte);
    const id = await staged(content);
    const gate = Promise.withResolvers<void>();
    const slow = sealsOver(behind(store, gate.promise));
    const asked = request(id, content);
    expect(await slow.seal(asked, 0)).toBeNull();
    expect(await slow.seal(asked, 1)).toBeNull();
    const joined = slow.seal(asked, 10_000);
    gate.resolve();
    expect(await joined).toEqual(factsOf(content));
  });

  test('with another sha256 while one runs has its own turn', async () => {
    const content = randomBytes(100);
    const gate = Promise.withResolvers<void>();
    const slow = sealsOver(behind(store, gate.promise));
    const asked = request(await staged(content), content, { sha256: Buffer.alloc(32) });
    const wrong = slow.seal(asked, 10_000);
    const right = slow.seal({ ...asked, sha256: null }, 10_000);
    gate.resolve();
    await refuses(wrong, 'checksum_mismatch');
    expect(await right).toEqual(factsOf(content));
  });

  test('stopping gives up what would read for long', async () => {
    const content = randomBytes(mebibyte);
    const id = await staged(content);
    digests.forget(contentKey(backendId, id));
    const gate = Promise.withResolvers<void>();
    const slow = sealsOver(behind(store, gate.promise));
    const sealing = slow.seal(request(id, content), 10_000);
    const stopping = slow.stop(0);
    // Timers fire in the order of their times: the content comes only after the stop gave up waiting.
    setTimeout(() => gate.resolve(), 20);
    await refuses(sealing, 'unavailable');
    await stopping;
    expect(await store.stagedOffset(id)).toBe(mebibyte);
  });

  test('any cut of any content into appends, over restarts, wrong bodies and lost digests, gives that of the whole', async () => {
    const step = fc.record({
      length: fc.integer({ min: 0, max: mebibyte + 100 }),
      checksum: fc.constantFrom('none', 'right', 'wrong first', 'broken first'),
      after: fc.constantFrom('nothing', 'restart', 'lose the digest'),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 6 }), async (steps) => {
        const content = randomBytes(steps.reduce((sum, { length }) => sum + length, 0));
        const id = newId();
        await store.createStaged(id);
        let offset = 0;
        for (const { length, checksum, after } of steps) {
          offset = await addPart(id, offset, content.subarray(offset, offset + length), checksum);
          if (after === 'restart') await restart();
          if (after === 'lose the digest') digests.forget(contentKey(backendId, id));
        }
        expect(await seals.seal(request(id, content), 10_000)).toEqual(factsOf(content));
      }),
      { numRuns: 40 },
    );
  });

  async function addPart(id: string, offset: number, part: Buffer, checksum: string): Promise<number> {
    if (checksum === 'none') return add(id, offset, part);
    const right = { algorithm: 'sha1', digest: createHash('sha1').update(part).digest() } as const;
    if (checksum === 'wrong first') {
      const wrong = Buffer.concat([part, Buffer.from('!')]);
      await refuses(add(id, offset, wrong, { checksum: right }), 'chunk_checksum_mismatch');
    }
    if (checksum === 'broken first') {
      await refuses(add(id, offset, brokenAfter(part)), 'unavailable');
      expect(await store.stagedOffset(id)).toBe(offset + part.length);
      return offset + part.length;
    }
    return add(id, offset, part, { checksum: right });
  }
});

/** The digest of all at once, which content-digest.test.ts holds against a reference. */
function factsOf(content: Buffer): unknown {
  const digest = new ContentDigest();
  digest.update(content);
  return { ...digest.facts(), sha256: createHash('sha256').update(content).digest() };
}

function brokenAfter(content: Buffer): Readable {
  return Readable.from(
    (function* () {
      yield Buffer.from(content);
      throw new Error('socket hang up');
    })(),
  );
}

/** A store whose seals check nothing before `gate` opens. */
function behind(store: AppendableStore, gate: Promise<void>): AppendableStore {
  const seal: AppendableStore['seal'] = (stagedId, key, check) =>
    store.seal(stagedId, key, async (content: StagedContent, signal) => {
      await gate;
      await check(content, signal);
    });
  return instead(store, { seal });
}

/** A store with another way to seal. */
function instead(store: AppendableStore, { seal }: Pick<AppendableStore, 'seal'>): AppendableStore {
  return new Proxy(store, {
    get: (target, property) => {
      if (property === 'seal') return seal;
      const value: unknown = Reflect.get(target, property);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}
