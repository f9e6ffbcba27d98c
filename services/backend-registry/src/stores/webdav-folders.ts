import { unavailable } from '@stowage/common/errors';
import { statusError } from './webdav-errors.ts';
import type { WebdavHttp } from './webdav-http.ts';
import type { WebdavPaths } from './webdav-paths.ts';
import { look } from './webdav-propfind.ts';

/** Makes folders, one level at a time. Remembers those that are there, until told that one is gone. */
export class WebdavFolders {
  readonly #http: WebdavHttp;
  readonly #paths: WebdavPaths;
  readonly #known = new Map<string, Promise<void>>();

  constructor(http: WebdavHttp, paths: WebdavPaths) {
    this.#http = http;
    this.#paths = paths;
  }

  /** See to it that the folder at `path` is there; its parent must be. Those who ask at once share one answer. */
  async ensure(path: string): Promise<void> {
    const known = this.#known.get(path);
    if (known) return known;
    const making = this.#make(path);
    this.#known.set(path, making);
    making.catch(() => this.#known.delete(path));
    return making;
  }

  /** Believes nothing any more: something was not where it should be. */
  forget(): void {
    this.#known.clear();
  }

  /** Asks first: what servers answer to MKCOL where a folder is already ranges from 405 to 409, 423 and 404. */
  async #make(path: string): Promise<void> {
    if (await this.#isFolder(path)) return;
    const status = await this.#http.statusOfChange({ method: 'MKCOL', path });
    if (status === 201 || status === 405 || (await this.#isFolder(path))) return;
    if (status === 409 || status === 404) {
      throw unavailable('The folders of this backend are missing on its server.', statusError(status, 'MKCOL'));
    }
    throw statusError(status, 'MKCOL');
  }

  async #isFolder(path: string): Promise<boolean> {
    const entry = await look(this.#http, this.#paths, path);
    if (entry && !entry.folder) {
      throw unavailable('Something that is no folder is in the place of a folder of this backend.');
    }
    return entry !== null;
  }
}
