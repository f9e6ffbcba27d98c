import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { AppError, unavailable } from '@stowage/common/errors';
import type { ByteRange } from './blob-store.ts';
import { abortError, oddAnswer } from './webdav-errors.ts';
import type { Exchange } from './webdav-exchange.ts';
import { expectStatus, statusOf } from './webdav-http.ts';
import type { Call, WebdavHttp } from './webdav-http.ts';

/** The bytes of a range, at least one, of what lies at `path`. Errors: `not_found` also for what is too short. */
export async function readRange(
  http: WebdavHttp,
  path: string,
  range: ByteRange,
  signal: AbortSignal,
): Promise<Readable> {
  const call: Call = { method: 'GET', path, headers: { range: `bytes=${range.start}-${range.end - 1}` }, signal };
  const exchange = http.open(call);
  try {
    exchange.request.end();
    exchange.within(http.limits.callMs);
    const response = await exchange.answer;
    const skip = checkedSkip(call, response, range);
    exchange.rest();
    const length = range.end - range.start;
    return new RangeStream({ exchange, response, skip, length, idleMs: http.limits.idleMs, signal });
  } catch (error) {
    exchange.release();
    throw exchange.errorOf(error);
  }
}

/** How many bytes come before the range. A server that knows no ranges sends all: what is not wanted is dropped. */
function checkedSkip(call: Call, response: IncomingMessage, range: ByteRange): number {
  const status = statusOf(response);
  if (status === 404 || status === 410) throw new AppError('not_found', 'There is no such blob on this backend.');
  if (status === 416) throw tooShort();
  expectStatus(call, status, 200, 206);
  const encoding = response.headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity') throw oddAnswer('the content comes encoded');
  const { 'content-length': length, 'content-range': place } = response.headers;
  if (status === 200) {
    if (length !== undefined && Number(length) < range.end) throw tooShort();
    return range.start;
  }
  const [, first, last, total] = /^bytes (\d{1,15})-(\d{1,15})\/(\d{1,15}|\*)$/.exec(place ?? '') ?? [];
  if (total !== undefined && Number(total) < range.end) throw tooShort();
  if (Number(first) !== range.start || Number(last) !== range.end - 1) throw oddAnswer('another range was sent');
  if (length !== undefined && Number(length) !== range.end - range.start) throw oddAnswer('a range of another length');
  return 0;
}

function tooShort(): AppError {
  return new AppError('not_found', 'The blob on this backend is shorter than it should be.');
}

interface RangeParts {
  exchange: Exchange;
  response: IncomingMessage;
  skip: number;
  length: number;
  idleMs: number;
  signal: AbortSignal;
}

/** Never ends short. Its connection is given back at the end, on an error and when it is destroyed. */
class RangeStream extends Readable {
  readonly #exchange: Exchange;
  readonly #response: IncomingMessage;
  readonly #idleMs: number;
  readonly #signal: AbortSignal;
  #skip: number;
  #left: number;

  constructor({ exchange, response, skip, length, idleMs, signal }: RangeParts) {
    super();
    this.#exchange = exchange;
    this.#response = response;
    this.#idleMs = idleMs;
    this.#skip = skip;
    this.#left = length;
    this.#signal = signal;
    // A caller may have left before anybody listens: that must not bring the process down.
    this.on('error', () => undefined);
    signal.addEventListener('abort', this.#onAbort, { once: true });
    if (signal.aborted) this.#onAbort();
    response.on('error', this.#onBroken).on('end', this.#onBroken).on('close', this.#onBroken);
    response.on('data', this.#onData).pause();
  }

  override _read(): void {
    if (this.#left === 0 || !this.#response.isPaused()) return;
    this.#exchange.within(this.#idleMs, 'The backend was silent for too long.');
    this.#response.resume();
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.#signal.removeEventListener('abort', this.#onAbort);
    if (this.#left > 0) this.#exchange.fail(unavailable('Nobody wants the rest of the content.'));
    this.#letGo();
    callback(error);
  }

  #onAbort = (): void => {
    this.destroy(abortError(this.#signal));
  };

  #onData = (piece: Buffer): void => {
    this.#exchange.touch();
    const wanted = piece.subarray(this.#skip, this.#skip + this.#left);
    this.#skip = Math.max(0, this.#skip - piece.length);
    if (wanted.length === 0) return;
    this.#left -= wanted.length;
    if (this.#left === 0) {
      this.#letGo();
      this.push(wanted);
      this.push(null);
    } else if (!this.push(wanted)) {
      this.#response.pause();
      // Whoever reads may take its time.
      this.#exchange.rest();
    }
  };

  #onBroken = (error?: unknown): void => {
    const short = unavailable('The content is shorter than it should be.');
    this.destroy(error === undefined ? this.#exchange.errorOf(short) : this.#exchange.errorOf(error));
  };

  #letGo(): void {
    this.#response.off('error', this.#onBroken).off('end', this.#onBroken).off('close', this.#onBroken);
    this.#response.off('data', this.#onData);
    this.#exchange.release();
  }
}
