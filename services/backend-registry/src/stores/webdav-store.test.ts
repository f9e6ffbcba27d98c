import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { newId } from '@stowage/common/ids';
import { describeWith, webdavServer } from '@stowage/tests/support/real-servers';
import type { WebdavServer } from '@stowage/tests/support/real-servers';
import { until } from '@stowage/tests/support/client';
import { blobStoreSuite } from './blob-store-suite.ts';
import type { BlobStoreUnderTest } from './blob-store-suite.ts';
import { blobKey } from './keys.ts';
import { isRefusal } from './store-refusal.ts';
import { digestOfBlob, seededContent, writeContent } from './test-content.ts';
import { brokenBody, never, readAll, refuses } from './test-store.ts';
import { RawFolder, testAgents } from './test-webdav.ts';
import { temporaryName } from './webdav-temporaries.ts';
import { WebdavStore } from './webdav-store.ts';

const agents = testAgents();

describeWith('WebDAV', webdavServer(), (server) => {
  blobStoreSuite('a WebDAV store', () => openUnderTest(server));
  describe('a WebDAV store', () => describeStore(server));
});

async function openUnderTest(given: WebdavServer): Promise<BlobStoreUnderTest> {
  const folder = await RawFolder.make(given);
  const store = await WebdavStore.open(folder.config, agents);
  await store.prepare();
  return {
    store,
    state: () => until(() => folder.blobs().catch(() => swept(store)), 10_000),
    plant: (path, content) => folder.put(path, content),
    unplant: (path) => folder.delete(path),
    killWriter: () => folder.put(`tmp/${temporaryName()}`, Buffer.from('half')),
    close: () => folder.remove(),
  };
}

/** A server that comes late to a PUT that was cut off leaves what only a sweep removes. */
async function swept(store: WebdavStore): Promise<null> {
  await store.sweep(new Date(Date.now() + 3_600_000));
  return null;
}

function describeStore(given: WebdavServer): void {
  const backendId = newId();
  const content = seededContent(5 * 1024 * 1024 + 1, 1);
  let folder: RawFolder;
  let stores: WebdavStore[];
  let store: WebdavStore;

  beforeEach(async () => {
    folder = await RawFolder.make(given);
    await folder.remove();
    // Apart as two processes are: they share neither agents nor what they remember.
    stores = [await WebdavStore.open(folder.config, testAgents()), await WebdavStore.open(folder.config, testAgents())];
    store = await WebdavStore.open(folder.config, testAgents());
  });

  afterEach(() => folder.remove());

  test('root_path is made by a claim, level by level, and by nothing else', async () => {
    expect(await store.identity()).toBeNull();
    await refuses(store.prepare(), 'unavailable');
    await refuses(writeContent(store, blobKey(newId()), content), 'unavailable');
    await refuses(store.list(null, 1), 'unavailable');
    expect(await folder.files()).toEqual({});
    await store.claim(backendId);
    await store.prepare();
    await store.prepare();
    expect(await store.identity()).toBe(backendId);
  });

  test('a folder that goes away is not taken for an empty backend', async () => {
    await store.claim(backendId);
    await store.prepare();
    const key = blobKey(newId());
    await writeContent(store, key, content);
    await folder.remove();
    expect(await store.identity()).toBeNull();
    expect(await store.stat(key)).toBeNull();
    await refuses(writeContent(store, key, content), 'unavailable');
    await refuses(writeContent(store, key, content), 'unavailable');
    await refuses(store.list(null, 1), 'unavailable');
    expect(await folder.files()).toEqual({});
    await store.claim(backendId);
    await store.prepare();
    await writeContent(store, key, content);
    expect(await folder.blobs()).toEqual({ [key]: content.size });
  });

  test('two processes that begin at once do not disturb each other', async () => {
    await Promise.all(stores.map((each) => each.claim(backendId)));
    await Promise.all(stores.map((each) => each.prepare()));
    for (let round = 0; round < 5; round += 1) {
      const key = blobKey(newId());
      await Promise.all(stores.map((each) => writeContent(each, key, content)));
      for (const each of stores) {
        expect((await digestOfBlob(each, key, 0, content.size)).equals(content.sha256)).toBe(true);
      }
      await Promise.all(stores.map((each) => each.delete(key)));
    }
    expect(await folder.blobs()).toEqual({});
  });

  test('a process that fails takes nothing from one that writes the same', async () => {
    await store.claim(backendId);
    await store.prepare();
    const key = blobKey(newId());
    const [one, other] = stores;
    const broken = brokenBody(content.slice(0, content.size));
    const failing = other && refuses(other.write(key, content, broken, never), 'unavailable');
    await Promise.all([one && writeContent(one, key, content), failing]);
    expect((await readAll(store, key, 0, content.size)).equals(content.slice(0, content.size))).toBe(true);
    expect(await folder.blobs()).toEqual({ [key]: content.size });
  });

  test('wrong credentials are told as such', async () => {
    const wrong = await WebdavStore.open({ ...folder.config, password: 'not-the-password' }, testAgents());
    const error = await refuses(wrong.identity(), 'unavailable');
    expect(error.detail).toContain('password');
    expect(isRefusal(error)).toBe(true);
    await refuses(wrong.claim(backendId), 'unavailable');
  });
}
