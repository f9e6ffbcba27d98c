import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { cp, mkdir, mkdtemp, readFile, readdir, rename, rm, stat, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { newId } from '@stowage/common/ids';
import type { AppendableStore } from './blob-store.ts';
import { blobStoreSuite } from './blob-store-suite.ts';
import { describeAppendableStore } from './conformance.ts';
import type { StoreState } from './conformance.ts';
import { markerName, writeMarker } from './identity-marker.ts';
import { blobKey } from './keys.ts';
import { LocalDirectory } from './local-directory.ts';
import { append, refuses, slowWriter } from './test-store.ts';

const backendId = newId();

async function makeRoot(): Promise<string> {
  const root = await mkdtemp(path.join(tmpdir(), 'stowage-store-'));
  await writeMarker(root, backendId);
  return root;
}

async function openStore(root: string): Promise<AppendableStore> {
  const store = await LocalDirectory.open(root);
  await store.prepare();
  return store;
}

async function stateOf(root: string): Promise<StoreState> {
  const state: StoreState = { staged: {}, blobs: {} };
  for (const entry of await readdir(root, { recursive: true, withFileTypes: true })) {
    const file = path.join(entry.parentPath, entry.name);
    const [top = '', ...rest] = path.relative(root, file).split('/');
    if (entry.isDirectory() || path.relative(root, file) === markerName) continue;
    const { size } = await stat(file);
    if (top === 'staging' && rest.length === 1 && !entry.name.includes('.')) state.staged[entry.name] = size;
    else if (top === 'blobs' && rest.length === 2) state.blobs[path.relative(root, file)] = size;
    else throw new Error(`${file} should not be here`);
  }
  return state;
}

describeAppendableStore('a local directory', async () => {
  const root = await makeRoot();
  return { store: await openStore(root), state: () => stateOf(root), close: () => rm(root, { recursive: true }) };
});

blobStoreSuite('a local directory', async () => {
  const root = await mkdtemp(path.join(tmpdir(), 'stowage-store-'));
  const plant = async (name: string, content: Buffer): Promise<void> => {
    await mkdir(path.dirname(path.join(root, name)), { recursive: true });
    await writeFile(path.join(root, name), content);
  };
  return {
    store: await openStore(root),
    state: async () => (await stateOf(root)).blobs,
    plant,
    unplant: (name) => rm(path.join(root, name)),
    killWriter: (key) => plant(`${key}.${randomUUID()}.tmp`, Buffer.from('half')),
    close: () => rm(root, { recursive: true }),
  };
});

describe('a local directory', () => {
  let root: string;
  let outside: string;
  let store: AppendableStore;

  beforeEach(async () => {
    root = await makeRoot();
    outside = await mkdtemp(path.join(tmpdir(), 'stowage-outside-'));
    await writeFile(path.join(outside, 'secret'), 'secret');
    store = await openStore(root);
  });

  afterEach(async () => {
    expect(await readFile(path.join(outside, 'secret'), 'utf8')).toBe('secret');
    expect(await readdir(outside)).toEqual(['secret']);
    await rm(root, { recursive: true });
    await rm(outside, { recursive: true });
  });

  describe('used by two processes', () => {
    const right = createHash('sha256').update('def').digest();
    let other: AppendableStore;
    let id: string;

    beforeEach(async () => {
      other = await openStore(root);
      id = newId();
      await store.createStaged(id);
      await append(store, id, 0, 'abc');
    });

    const content = (): Promise<string> => readFile(path.join(root, 'staging', id), 'utf8');

    test('content grows through both in turn', async () => {
      expect(await append(other, id, 3, 'def', { fence: 2n })).toBe(6);
      expect(await store.stagedOffset(id)).toBe(6);
      expect(await append(store, id, 6, 'ghi', { fence: 3n })).toBe(9);
      expect(await other.stagedOffset(id)).toBe(9);
      expect(await content()).toBe('abcdefghi');
    });

    test('a writer that stood still overwrites nothing that another one added meanwhile', async () => {
      const late = slowWriter(store, id, 3, 2n);
      await append(other, id, 3, 'def', { fence: 3n });
      await late.send('XYZXYZ');
      late.end();
      await refuses(late.result, 'locked');
      expect(await content()).toBe('abcdef');
    });

    test('a writer that stood still cuts off nothing that another one added meanwhile', async () => {
      const late = slowWriter(store, id, 3, 2n, { checksum: { algorithm: 'sha256', digest: right } });
      await late.send('d');
      await append(other, id, 3, 'def', { fence: 3n });
      late.end();
      await refuses(late.result, 'locked');
      expect(await other.stagedOffset(id)).toBe(6);
      expect(await content()).toBe('abcdef');
    });

    test('looking through one changes nothing under a writer of the other', async () => {
      const writer = slowWriter(store, id, 3, 2n, { checksum: { algorithm: 'sha256', digest: right } });
      await writer.send('d');
      expect(await other.stagedOffset(id)).toBe(3);
      await writer.send('ef');
      expect(await other.stagedOffset(id)).toBe(3);
      writer.end();
      expect(await writer.result).toBe(6);
      expect(await other.stagedOffset(id)).toBe(6);
    });

    test('what the other seals between the look at it and its move is sealed, by the other', async () => {
      const made = newId();
      await store.createStaged(made);
      await append(store, made, 0, Buffer.from('abc'));
      const key = blobKey(newId());
      const elsewhere = await LocalDirectory.open(root);
      const late = store.seal(made, key, async () => {
        expect(await elsewhere.seal(made, key, async () => undefined)).toBe(true);
      });
      expect(await late).toBe(false);
    });

    test('what a crash of the other left unchecked does not count when this one seals', async () => {
      const made = newId();
      await append(store, made, 0, 'abc', { create: true, limit: 6 });
      await writeFile(path.join(root, 'staging', `${made}.limit`), '3');
      await writeFile(path.join(root, 'staging', made), 'abcXYZ');
      const sizes: number[] = [];
      await store.seal(made, blobKey(newId()), async ({ size }) => void sizes.push(size));
      expect(sizes).toEqual([3]);
    });
  });

  test('its root may be a symbolic link', async () => {
    const alias = path.join(outside, '..', `${path.basename(root)}-alias`);
    await symlink(root, alias);
    const linked = await openStore(alias);
    const id = newId();
    await linked.createStaged(id);
    expect(await append(linked, id, 0, 'abc')).toBe(3);
    expect(await linked.identity()).toBe(backendId);
    await rm(alias);
  });

  test('a link, a pipe-like folder or anything else but a file in place of a blob is no blob', async () => {
    const key = blobKey(newId());
    const file = path.join(root, key);
    await mkdir(path.dirname(file), { recursive: true });
    await symlink(path.join(outside, 'secret'), file);
    expect(await store.stat(key)).toBeNull();
    await refuses(store.read(key, { start: 0, end: 6 }, new AbortController().signal), 'not_found');
    await store.delete(key);
    await mkdir(file);
    expect(await store.stat(key)).toBeNull();
    await refuses(store.read(key, { start: 0, end: 6 }, new AbortController().signal), 'not_found');
  });

  test('a link in place of staged content is neither written nor sealed', async () => {
    const id = newId();
    await symlink(path.join(outside, 'secret'), path.join(root, 'staging', id));
    await refuses(store.createStaged(id), 'unavailable');
    expect(await store.stagedOffset(id)).toBeNull();
    await refuses(append(store, id, 6, 'x'), 'not_found');
    expect(await store.seal(id, blobKey(newId()), async () => undefined)).toBe(false);
    await store.discard(id);
  });

  test('a folder of blobs that is a link is not followed', async () => {
    const blobId = newId();
    const key = blobKey(blobId);
    await symlink(outside, path.dirname(path.join(root, key)));
    const id = newId();
    await store.createStaged(id);
    await append(store, id, 0, 'abc');
    await refuses(
      store.seal(id, key, async () => undefined),
      'unavailable',
    );
    await refuses(store.stat(key), 'unavailable');
    await refuses(store.read(key, { start: 0, end: 1 }, new AbortController().signal), 'unavailable');
    await refuses(store.delete(key), 'unavailable');
    expect(await store.stagedOffset(id)).toBe(3);
  });

  test('a staging folder or the folder of all blobs that is a link is not followed', async () => {
    const id = newId();
    await store.createStaged(id);
    await rename(path.join(root, 'blobs'), path.join(root, 'blobs-before'));
    await symlink(outside, path.join(root, 'blobs'));
    await refuses(
      store.seal(id, blobKey(newId()), async () => undefined),
      'unavailable',
    );
    await rename(path.join(root, 'staging'), path.join(root, 'staging-before'));
    await symlink(outside, path.join(root, 'staging'));
    await refuses(store.createStaged(newId()), 'unavailable');
    await refuses(append(store, id, 0, 'x'), 'unavailable');
    await refuses(store.stagedOffset(id), 'unavailable');
    await refuses(store.discard(id), 'unavailable');
  });

  test('a disk that goes away leaves neither content nor an empty backend', async () => {
    const id = newId();
    await store.createStaged(id);
    await rename(root, `${root}-away`);
    await mkdir(root);
    expect(await store.identity()).toBeNull();
    await refuses(store.createStaged(newId()), 'unavailable');
    await refuses(append(store, id, 0, 'x'), 'unavailable');
    expect(await readdir(root)).toEqual([]);
    await rm(root, { recursive: true });
    await rename(`${root}-away`, root);
    expect(await append(store, id, 0, 'x')).toBe(1);
  });

  test('a marker with nonsense in it is no marker', async () => {
    for (const text of ['', '{', '[]', '{"backend_id":7}', '{"backend_id":"../x"}']) {
      await writeFile(path.join(root, markerName), text);
      expect(await store.identity()).toBeNull();
    }
  });

  test('after a crash in a body with a checksum only what was there before counts', async () => {
    const id = newId();
    await store.createStaged(id);
    await append(store, id, 0, 'abc');
    const digest = { algorithm: 'sha256', digest: Buffer.alloc(32) } as const;
    const writer = slowWriter(store, id, 3, 1n, { checksum: digest });
    await writer.send(randomBytes(1024 * 1024));
    await writer.send('more');
    // What lies on the disk now is what a killed process leaves.
    const killed = await copyOf(root);
    expect(await readdir(path.join(killed, 'staging'))).toContain(`${id}.limit`);
    const restarted = await openStore(killed);
    expect(await restarted.stagedOffset(id)).toBe(3);
    expect(await append(restarted, id, 3, 'def')).toBe(6);
    expect(await stateOf(killed)).toEqual({ staged: { [id]: 6 }, blobs: {} });
    await rm(killed, { recursive: true });
    writer.end();
    await refuses(writer.result, 'chunk_checksum_mismatch');
  });

  test('an append and a seal right after such a crash cut the content back too', async () => {
    for (const next of ['append', 'seal'] as const) {
      const id = newId();
      await writeFile(path.join(root, 'staging', id), 'abcunchecked');
      await writeFile(path.join(root, 'staging', `${id}.limit`), '3');
      if (next === 'append') expect(await append(store, id, 3, 'def')).toBe(6);
      const key = blobKey(newId());
      await store.seal(id, key, async (content) => expect(content.size).toBe(next === 'append' ? 6 : 3));
      expect(await readFile(path.join(root, key), 'utf8')).toBe(next === 'append' ? 'abcdef' : 'abc');
    }
  });

  test('a discarded upload leaves no side file', async () => {
    const id = newId();
    await writeFile(path.join(root, 'staging', id), 'abcunchecked');
    await writeFile(path.join(root, 'staging', `${id}.limit`), '3');
    await store.discard(id);
    expect(await stateOf(root)).toEqual({ staged: {}, blobs: {} });
  });

  test('temporaries of a crash are swept when they are old, and only they', async () => {
    const staging = path.join(root, 'staging');
    const old = new Date(Date.now() - 3_600_000);
    for (const name of ['old.limit.1.tmp', 'young.limit.2.tmp', newId()]) await writeFile(path.join(staging, name), '');
    for (const name of await readdir(staging))
      if (!name.startsWith('young')) await utimes(path.join(staging, name), old, old);
    await writeFile(path.join(root, `${markerName}.3.tmp`), '');
    await utimes(path.join(root, `${markerName}.3.tmp`), old, old);
    await openStore(root);
    expect((await readdir(staging)).filter((name) => name.endsWith('.tmp'))).toEqual(['young.limit.2.tmp']);
    expect(await readdir(staging)).toHaveLength(2);
    expect((await readdir(root)).sort()).toEqual([markerName, 'blobs', 'staging']);
  });
});

/** What lies on the disk at this moment, apart. */
async function copyOf(root: string): Promise<string> {
  const copy = await mkdtemp(path.join(tmpdir(), 'stowage-copy-'));
  await cp(root, copy, { recursive: true });
  return copy;
}
