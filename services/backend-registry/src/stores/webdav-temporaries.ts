import { randomUUID } from 'node:crypto';
import { unavailable } from '@stowage/common/errors';
import { statusError } from './webdav-errors.ts';
import type { WebdavFolders } from './webdav-folders.ts';
import { expectStatus } from './webdav-http.ts';
import type { Call, WebdavHttp } from './webdav-http.ts';
import type { WebdavPaths } from './webdav-paths.ts';
import { look, lookInto } from './webdav-propfind.ts';
import type { Put } from './webdav-put.ts';

const folder = 'tmp';

/** How many are swept in one go: their names are in memory. */
const sweepCount = 10_000;

const never = new AbortController().signal;
const namePattern = /^([0-9a-f]{12})-[0-9a-f-]{36}$/;

/** The name of a temporary object: when it was begun, and what nobody can guess. */
export function temporaryName(startedAt = new Date()): string {
  return `${startedAt.getTime().toString(16).padStart(12, '0')}-${randomUUID()}`;
}

/** What is on its way to its place: objects in a folder of their own, each moved when it is whole and removed when it fails. */
export class WebdavTemporaries {
  readonly #http: WebdavHttp;
  readonly #paths: WebdavPaths;
  readonly #folders: WebdavFolders;

  constructor(http: WebdavHttp, paths: WebdavPaths, folders: WebdavFolders) {
    this.#http = http;
    this.#paths = paths;
    this.#folders = folders;
  }

  async prepare(): Promise<void> {
    await this.#folders.ensure(this.#paths.folder(folder));
  }

  /** Brings a body to the path `to`, in place of what is there. */
  async bring(put: Put, to: string, signal: AbortSignal): Promise<void> {
    await this.#withTemporary(async (path) => {
      await put.send(this.#http, path, signal);
      const kept = await look(this.#http, this.#paths, path, signal);
      if (kept?.size !== put.size) throw unavailable('The backend did not keep all that was sent to it.');
      const status = await this.#move(path, to, 'T', signal);
      if (status !== 201 && status !== 204) throw statusError(status, 'MOVE');
    });
  }

  /** Brings a short text to the path `to`; false when something is there already, which stays. */
  async bringNew(text: string, to: string): Promise<boolean> {
    return this.#withTemporary(async (path) => {
      const call: Call = { method: 'PUT', path, body: text };
      expectStatus(call, await this.#http.status(call), 200, 201, 204);
      const status = await this.#move(path, to, 'F', never);
      if (status === 412) await this.#remove(path);
      else if (status !== 201 && status !== 204) throw statusError(status, 'MOVE');
      return status !== 412;
    });
  }

  /** As BlobStore.sweep. Takes the later of the server's time and of ours: one of the clocks may be wrong. */
  async sweep(before: Date): Promise<number> {
    const old: string[] = [];
    await lookInto(this.#http, this.#paths, this.#paths.folder(folder), (name, { modifiedAt }) => {
      const startedAt = parseInt(namePattern.exec(name)?.[1] ?? '', 16);
      // NaN, of a foreign name, is less than nothing.
      const isOld = Math.max(startedAt, modifiedAt?.getTime() ?? Date.now()) < before.getTime();
      if (isOld && old.length < sweepCount) old.push(name);
    });
    let swept = 0;
    for (const name of old) {
      const call: Call = { method: 'DELETE', path: this.#paths.file(folder, name) };
      const status = await this.#http.statusOfChange(call);
      expectStatus(call, status, 200, 204, 404, 410);
      if (status < 300) swept += 1;
    }
    return swept;
  }

  async #withTemporary<R>(work: (path: string) => Promise<R>): Promise<R> {
    const path = this.#paths.file(folder, temporaryName());
    try {
      await this.prepare();
      return await work(path);
    } catch (error) {
      await this.#remove(path);
      // It may have failed because a folder is gone.
      this.#folders.forget();
      throw error;
    }
  }

  /** The status of the move. */
  async #move(from: string, to: string, overwrite: 'T' | 'F', signal: AbortSignal): Promise<number> {
    const headers = { destination: this.#paths.address(to), overwrite };
    const { completeMs } = this.#http.limits;
    return this.#http.statusOfChange({ method: 'MOVE', path: from, headers, signal, callMs: completeMs });
  }

  /** As best it can: what stays is swept later. */
  async #remove(path: string): Promise<void> {
    const { cleanUpMs } = this.#http.limits;
    await this.#http.statusOfChange({ method: 'DELETE', path, callMs: cleanUpMs }).catch(() => undefined);
  }
}
