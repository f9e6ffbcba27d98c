import http from 'node:http';
import https from 'node:https';
import { text } from 'node:stream/consumers';
import { newId } from '@stowage/common/ids';
import type { WebdavServer } from '@stowage/tests/support/real-servers';
import { markerName } from './identity-marker.ts';
import type { WebdavConfig } from './webdav-store.ts';

/** Agents of a test's own. */
export function testAgents(): { http: http.Agent; https: https.Agent } {
  return { http: new http.Agent({ keepAlive: true }), https: new https.Agent({ keepAlive: true }) };
}

/** A folder of a server, seen by a client that shares nothing with the store. */
export class RawFolder {
  readonly config: WebdavConfig;

  private constructor(config: WebdavConfig) {
    this.config = config;
  }

  /** A new folder of a new name, two levels deep. */
  static async make({ url, user, password }: WebdavServer): Promise<RawFolder> {
    const [top, root] = ['stowage-tests', `test ${newId()}`];
    const folder = new RawFolder({ url, username: user, password, rootPath: `/${top}/${root}` });
    for (const path of [`/${top}/`, `/${top}/${root}/`]) await folder.#ask('MKCOL', path);
    return folder;
  }

  async put(path: string, content: Buffer): Promise<void> {
    const levels = path.split('/').slice(0, -1);
    for (const [index] of levels.entries()) await this.#inside('MKCOL', `${levels.slice(0, index + 1).join('/')}/`);
    const { status } = await this.#inside('PUT', path, content);
    if (status >= 300) throw new Error(`PUT ${path}: ${status}`);
  }

  async delete(path: string): Promise<void> {
    await this.#inside('DELETE', path);
  }

  /** All files below, with their sizes, by their path from the folder. */
  async files(below = ''): Promise<Record<string, number>> {
    const { body } = await this.#inside('PROPFIND', below);
    const files: Record<string, number> = {};
    for (const [, entry = ''] of body.matchAll(/<D:response>(.*?)<\/D:response>/gs)) {
      const href = decodeURIComponent(/<D:href>(.*?)<\/D:href>/.exec(entry)?.[1] ?? '');
      const path = href.slice(new URL(this.config.url).pathname.length - 1 + this.config.rootPath.length + 1);
      if (path === below) continue;
      if (entry.includes('<D:collection')) Object.assign(files, await this.files(path));
      else files[path] = Number(/<D:getcontentlength>(\d+)</.exec(entry)?.[1]);
    }
    return files;
  }

  /** The sizes of all blobs; throws on anything else but the marker. */
  async blobs(): Promise<Record<string, number>> {
    const files = await this.files();
    delete files[markerName];
    const odd = Object.keys(files).filter((path) => !path.startsWith('blobs/'));
    if (odd.length > 0) throw new Error(`${odd.join()} should not be here`);
    return files;
  }

  async remove(): Promise<void> {
    await this.#inside('DELETE', '');
  }

  async #inside(method: string, path: string, body?: Buffer): Promise<{ status: number; body: string }> {
    return this.#ask(method, `${this.config.rootPath}/${path}`, body);
  }

  async #ask(method: string, path: string, body?: Buffer): Promise<{ status: number; body: string }> {
    const { url, username, password } = this.config;
    const address = new URL(url.replace(/\/$/, '') + encodeURI(path));
    const answer = await new Promise<http.IncomingMessage>((resolve, reject) => {
      const headers = { depth: '1', 'content-length': body?.length ?? 0 };
      const request = http.request(address, { method, auth: `${username}:${password}`, headers }, resolve);
      request.once('error', reject).end(body);
    });
    return { status: answer.statusCode ?? 0, body: await text(answer) };
  }
}
