import { describe, test } from '@jest/globals';
import { blobStoreSuite } from './blob-store-suite.ts';
import type { BlobStoreUnderTest } from './blob-store-suite.ts';
import { RawFolder, givenServer, testAgents } from './test-webdav.ts';
import type { GivenServer } from './test-webdav.ts';
import { temporaryName } from './webdav-temporaries.ts';
import { WebdavStore } from './webdav.ts';

const server = givenServer(process.env);
const agents = testAgents();

if (server) {
  blobStoreSuite('a WebDAV server', () => openUnderTest(server));
} else {
  describe('a WebDAV server', () => {
    test.skip('keeps what a blob store promises: STOWAGE_TEST_WEBDAV_URL names none', () => undefined);
  });
}

async function openUnderTest(given: GivenServer): Promise<BlobStoreUnderTest> {
  const folder = await RawFolder.make(given);
  const store = WebdavStore.open(folder.config, agents);
  await store.prepare();
  return {
    store,
    state: () => folder.blobs(),
    plant: (path, content) => folder.put(path, content),
    unplant: (path) => folder.delete(path),
    killWriter: () => folder.put(`tmp/${temporaryName()}`, Buffer.from('half')),
    close: () => folder.remove(),
  };
}
