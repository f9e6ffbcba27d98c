import { Readable } from 'node:stream';
import { AppError } from '@stowage/common/errors';
import type { BlobPage, BlobStore, ByteRange, ExpectedContent } from './blob-store.ts';
import { placeOfKey } from './keys.ts';
import type { StoreAgents } from './s3-config.ts';
import { WebdavFolders } from './webdav-folders.ts';
import { WebdavHttp, expectStatus } from './webdav-http.ts';
import type { Call } from './webdav-http.ts';
import { usualWebdavLimits } from './webdav-limits.ts';
import type { WebdavLimits } from './webdav-limits.ts';
import { WebdavListing } from './webdav-listing.ts';
import { WebdavMarker } from './webdav-marker.ts';
import { WebdavPaths } from './webdav-paths.ts';
import { look } from './webdav-propfind.ts';
import { Put } from './webdav-put.ts';
import { readRange } from './webdav-range.ts';
import { WebdavTemporaries } from './webdav-temporaries.ts';
import { requireWholeSize } from './whole-size.ts';

/** What is known of a WebDAV server. */
export interface WebdavConfig {
  url: string;
  rootPath: string;
  username: string;
  password: string;
}

const blobsFolder = 'blobs';

/**
 * Blobs as files below one folder of a WebDAV server: `blobs/<xx>/<blob id>`, and kept exports in `exports`. Each is put under a name of its own in `tmp/` and
 * then moved, so that none is seen before it is whole. What an answer promises is as durable as the server makes it.
 */
export class WebdavStore implements BlobStore {
  readonly #http: WebdavHttp;
  readonly #paths: WebdavPaths;
  readonly #folders: WebdavFolders;
  readonly #listing: WebdavListing;
  readonly #temporaries: WebdavTemporaries;
  readonly #marker: WebdavMarker;

  private constructor(config: WebdavConfig, agents: StoreAgents, limits: WebdavLimits) {
    this.#paths = new WebdavPaths(config.url, config.rootPath);
    this.#http = new WebdavHttp(this.#paths.url, config, agents, limits);
    this.#folders = new WebdavFolders(this.#http, this.#paths);
    this.#listing = new WebdavListing(this.#http, this.#paths);
    this.#temporaries = new WebdavTemporaries(this.#http, this.#paths, this.#folders);
    this.#marker = new WebdavMarker(this.#http, this.#paths, this.#temporaries);
  }

  /** The store at root_path of the server. Throws `validation_failed` for a config that names no place; asks nothing yet. */
  static async open(
    config: WebdavConfig,
    agents: StoreAgents,
    limits: WebdavLimits = usualWebdavLimits,
  ): Promise<WebdavStore> {
    return new WebdavStore(config, agents, limits);
  }

  async identity(): Promise<string | null> {
    return this.#marker.read();
  }

  async prepare(): Promise<void> {
    this.#folders.forget();
    await this.#temporaries.prepare();
    await this.#folders.ensure(this.#paths.folder(blobsFolder));
  }

  /** As promised by BlobStore; makes root_path where it is missing, which nothing else does. */
  async claim(backendId: string): Promise<void> {
    this.#folders.forget();
    for (const level of this.#paths.rootLevels()) await this.#folders.ensure(level);
    await this.#marker.claim(backendId);
  }

  async write(key: string, content: ExpectedContent, body: Readable, signal: AbortSignal): Promise<void> {
    const { folder, name } = placeOfKey(key);
    const put = new Put(content, body);
    try {
      await this.#folders.ensure(this.#paths.folder(...folder.split('/')));
      await this.#temporaries.bring(put, this.#paths.file(...folder.split('/'), name), signal);
    } finally {
      put.leave();
    }
  }

  async read(key: string, range: ByteRange, signal: AbortSignal): Promise<Readable> {
    const path = this.#pathOf(key);
    const isEmpty = range.end <= range.start;
    // A server need not tell with a range how large the whole is.
    if (isEmpty || range.of !== undefined) {
      const found = await this.stat(key);
      if (!found || found.size < range.end) throw new AppError('not_found', 'There is no such blob on this backend.');
      requireWholeSize(found.size, range);
    }
    return isEmpty ? Readable.from([]) : readRange(this.#http, path, range, signal);
  }

  async stat(key: string): Promise<{ size: number } | null> {
    const found = await look(this.#http, this.#paths, this.#pathOf(key));
    return found && found.size !== null && !found.folder ? { size: found.size } : null;
  }

  async delete(key: string): Promise<void> {
    const call: Call = { method: 'DELETE', path: this.#pathOf(key) };
    expectStatus(call, await this.#http.statusOfChange(call), 200, 204, 404, 410);
  }

  async serverCopy(): Promise<null> {
    return null;
  }

  async list(cursor: string | null, limit: number): Promise<BlobPage> {
    return this.#listing.page(cursor, limit);
  }

  async sweep(before: Date): Promise<number> {
    return this.#temporaries.sweep(before);
  }

  #pathOf(key: string): string {
    const { folder, name } = placeOfKey(key);
    return this.#paths.file(...folder.split('/'), name);
  }
}
