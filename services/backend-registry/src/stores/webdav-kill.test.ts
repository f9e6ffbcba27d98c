import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { newId } from '@stowage/common/ids';
import { describeWith, webdavServer } from '@stowage/tests/support/real-servers';
import { startServer } from '@stowage/tests/support/share-servers';
import type { OwnServer } from '@stowage/tests/support/share-servers';
import { blobKey } from './keys.ts';
import { digestOfBlob, heldBody, seededContent, writeContent } from './test-content.ts';
import { never, refuses } from './test-store.ts';
import { RawFolder, testAgents } from './test-webdav.ts';
import { usualWebdavLimits } from './webdav-limits.ts';
import { WebdavStore } from './webdav-store.ts';

const content = seededContent(64 * 1024 * 1024 + 1, 1);
const quick = { ...usualWebdavLimits, callMs: 1_500, completeMs: 1_500, idleMs: 1_500, cleanUpMs: 500 };

describeWith('WebDAV', webdavServer(), () => {
  let server: OwnServer;
  let folder: RawFolder;
  let store: WebdavStore;

  beforeAll(async () => {
    server = await startServer('WebDAV');
    const { STOWAGE_TEST_WEBDAV_URL: url = '' } = server.settings;
    const { STOWAGE_TEST_WEBDAV_USER: user = '', STOWAGE_TEST_WEBDAV_PASSWORD: password = '' } = server.settings;
    folder = await RawFolder.make({ url, user, password });
    store = await WebdavStore.open(folder.config, testAgents(), quick);
    await store.claim(newId());
    await store.prepare();
  });

  afterAll(() => server.close());

  test('a WebDAV server that is killed in a write shows nothing of it, and takes it once it is back', async () => {
    const key = blobKey(newId());
    const held = heldBody([content.slice(0, content.size - 1)]);
    const writing = refuses(store.write(key, content, held.body, never), 'unavailable');
    await held.waiting;
    await server.kill();
    await writing;
    await refuses(store.stat(key), 'unavailable');
    await server.restart();
    expect(await store.stat(key)).toBeNull();
    expect(await store.list(null, 10)).toEqual({ blobs: [], next: null });
    await writeContent(store, key, content);
    await store.sweep(new Date(Date.now() + 3_600_000));
    expect(await folder.blobs()).toEqual({ [key]: content.size });
    await store.delete(key);
  });

  test('one that is killed in a read breaks it, and has the blob once it is back', async () => {
    const key = blobKey(newId());
    await writeContent(store, key, content);
    const stream = await store.read(key, { start: 0, end: content.size }, never);
    const reading = (async () => {
      for await (const piece of stream) if (piece.length > 0) await server.kill();
    })();
    await refuses(reading, 'unavailable');
    await server.restart();
    expect((await digestOfBlob(store, key, 0, content.size)).equals(content.sha256)).toBe(true);
    await store.delete(key);
  });

  test('one that hangs is left in time, whatever it is asked, and used again when it goes on', async () => {
    const key = blobKey(newId());
    await writeContent(store, key, content);
    server.process.kill('SIGSTOP');
    try {
      await refuses(store.stat(key), 'unavailable');
      await refuses(store.identity(), 'unavailable');
      await refuses(store.list(null, 10), 'unavailable');
      await refuses(digestOfBlob(store, key, 0, 1), 'unavailable');
      await refuses(writeContent(store, blobKey(newId()), content), 'unavailable');
    } finally {
      server.process.kill('SIGCONT');
    }
    expect((await digestOfBlob(store, key, 0, content.size)).equals(content.sha256)).toBe(true);
  });
});
