import { backendIdIn, markerName, markerText, maxMarkerBytes, requireClaimed } from './identity-marker.ts';
import { expectStatus, readAnswer, statusOf } from './webdav-http.ts';
import type { Call, WebdavHttp } from './webdav-http.ts';
import type { WebdavPaths } from './webdav-paths.ts';
import type { WebdavTemporaries } from './webdav-temporaries.ts';

/** The identity marker on a WebDAV server. */
export class WebdavMarker {
  readonly #http: WebdavHttp;
  readonly #path: string;
  readonly #temporaries: WebdavTemporaries;

  constructor(http: WebdavHttp, paths: WebdavPaths, temporaries: WebdavTemporaries) {
    this.#http = http;
    this.#path = paths.file(markerName);
    this.#temporaries = temporaries;
  }

  /** The backend id in it; null when there is no marker, or no id in it. */
  async read(): Promise<string | null> {
    const text = await this.#text();
    return text === null ? null : backendIdIn(text);
  }

  /**
   * As BlobStore.claim. Moved to its place with `Overwrite: F` rather than put there with If-None-Match: that leaves no half
   * marker, and servers honour it more widely. Read back, for those that don't.
   */
  async claim(backendId: string): Promise<void> {
    const found = await this.#text();
    if (found !== null) return requireClaimed(backendIdIn(found), backendId);
    await this.#temporaries.bringNew(markerText(backendId), this.#path);
    requireClaimed(await this.read(), backendId);
  }

  /** '' for one that is too long to be a marker. */
  async #text(): Promise<string | null> {
    const call: Call = { method: 'GET', path: this.#path };
    return this.#http.call(call, async (response, exchange) => {
      expectStatus(call, statusOf(response), 200, 404, 410);
      if (statusOf(response) !== 200) return null;
      if (Number(response.headers['content-length'] ?? 0) > maxMarkerBytes) return '';
      const pieces: Buffer[] = [];
      await readAnswer(response, exchange, maxMarkerBytes, (piece) => pieces.push(piece));
      return Buffer.concat(pieces).toString('utf8');
    });
  }
}
