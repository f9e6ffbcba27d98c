import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { unavailable } from '@stowage/common/errors';
import type { AppError } from '@stowage/common/errors';
import type { ExpectedContent } from './blob-store.ts';
import { CheckedBody } from './checked-body.ts';
import { abortError, connectionError, statusError } from './webdav-errors.ts';
import type { Exchange } from './webdav-exchange.ts';
import { statusOf } from './webdav-http.ts';
import type { WebdavHttp } from './webdav-http.ts';

/** One body on its way. Listens to it from the start, so that what breaks before anything is sent is noticed too. */
export class Put {
  readonly #size: number;
  readonly #stop = new AbortController();
  readonly #body: CheckedBody;

  constructor(content: ExpectedContent, body: Readable) {
    this.#size = content.size;
    this.#body = new CheckedBody(content, body, this.#stop.signal);
  }

  /**
   * Puts the body at `path`, with back-pressure. Throws as BlobStore.write does; then something may lie there. Settles once
   * no piece of the body is looked at any more.
   */
  async send(http: WebdavHttp, path: string, signal: AbortSignal): Promise<void> {
    if (signal.aborted) throw abortError(signal);
    const headers = { 'content-length': this.#size, 'content-type': 'application/octet-stream' };
    const exchange = http.open({ method: 'PUT', path, headers, signal });
    this.#watch(exchange);
    try {
      exchange.within(http.limits.idleMs, 'The content did not flow to the backend for too long.');
      await this.#pour(exchange);
      exchange.within(http.limits.completeMs);
      exchange.request.end();
      const status = statusOf(await exchange.answer);
      if (![200, 201, 204].includes(status)) throw statusError(status, 'PUT');
      await flushed(exchange);
      exchange.release();
    } catch (error) {
      const failure = exchange.errorOf(error);
      exchange.fail(failure);
      await exchange.closed;
      throw failure;
    }
  }

  /** The size of the body, in bytes. */
  get size(): number {
    return this.#size;
  }

  /** Turns away from the body. */
  leave(): void {
    this.#body.stop();
  }

  /** An answer that comes before the whole body, or an end of the connection, stops the body. */
  #watch({ answer, request }: Exchange): void {
    answer.then(
      (response) => {
        if (!request.writableEnded) this.#stop.abort(earlyAnswer(statusOf(response)));
      },
      (error: unknown) => this.#stop.abort(connectionError(error)),
    );
  }

  async #pour(exchange: Exchange): Promise<void> {
    for (let batch = await this.#body.next(); batch !== null; batch = await this.#body.next()) {
      for (const piece of batch) {
        if (!exchange.request.write(piece)) await this.#drained(exchange);
        exchange.touch();
      }
    }
  }

  async #drained(exchange: Exchange): Promise<void> {
    const { signal } = this.#stop;
    try {
      await once(exchange.request, 'drain', { signal });
    } catch (error) {
      throw signal.aborted ? signal.reason : error;
    }
  }
}

async function flushed({ request, closed }: Exchange): Promise<void> {
  if (!request.writableFinished) await Promise.race([once(request, 'finish'), closed]);
  if (!request.writableFinished) throw earlyAnswer(200);
}

function earlyAnswer(status: number): AppError {
  if (status >= 300) return statusError(status, 'PUT');
  return unavailable('The backend answered before it had the whole content.');
}
