import type { ClientRequest, IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { unavailable } from '@stowage/common/errors';
import type { AppError } from '@stowage/common/errors';
import { unreachable } from './connection-faults.ts';
import { abortError, connectionError } from './webdav-errors.ts';

/** What is left of an answer that nobody reads is taken in up to here, so that its connection can be used again. */
const drainBytes = 64 * 1024;

/**
 * One request and its answer. It has a deadline at any time, set by within(); when that passes, the signal is aborted or the
 * connection breaks, all of it ends with one and the same error. Whoever has it must call release().
 */
export class Exchange {
  readonly request: ClientRequest;
  /** The head of the answer. */
  readonly answer: Promise<IncomingMessage>;
  /** Its connection was given back or closed: no byte that was handed to it is looked at any more. */
  readonly closed: Promise<void>;
  readonly #signal: AbortSignal;
  #response: IncomingMessage | null = null;
  #failure: AppError | null = null;
  #timer: NodeJS.Timeout | null = null;

  constructor(request: ClientRequest, signal: AbortSignal, connectMs: number) {
    this.request = request;
    this.#signal = signal;
    this.closed = new Promise((resolve) => request.once('close', resolve));
    this.answer = new Promise((resolve, reject) => {
      request.once('response', (response) => {
        this.#response = response;
        // Whoever reads it listens too; when nobody does, a break must not bring the process down.
        response.on('error', () => undefined);
        resolve(response);
      });
      request.on('error', (error) => reject(this.errorOf(error)));
      request.once('close', () => reject(this.errorOf(null)));
    });
    this.answer.catch(() => undefined);
    request.once('socket', (socket) => this.#watchConnect(socket, connectMs));
    signal.addEventListener('abort', this.#onAbort, { once: true });
    if (signal.aborted) this.#onAbort();
  }

  /** The deadline from now on, and what is said when it passes; replaces the one before. */
  within(milliseconds: number, sentence = unreachable): void {
    this.rest();
    this.#timer = setTimeout(() => this.fail(unavailable(sentence)), milliseconds);
  }

  /** Begins the time of the last within() anew: something has moved. */
  touch(): void {
    this.#timer?.refresh();
  }

  /** No deadline: it is not the server that is waited for. */
  rest(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
  }

  /** Ends it with `failure`, unless it has failed before, and closes its connection. */
  fail(failure: AppError): void {
    this.#failure ??= failure;
    this.#settle();
    // A request that is destroyed has its answer run dry and then end as if it were whole.
    (this.#response ?? this.request).destroy(this.#failure);
    this.request.destroy();
  }

  /** What ended it, when `error` is what was seen of that. */
  errorOf(error: unknown): AppError {
    return this.#failure ?? connectionError(error);
  }

  /** Gives everything back. What is left of a small answer is taken in first; the connection of a long one is closed. */
  release(): void {
    this.#settle();
    const response = this.#response;
    if (!response || !this.request.writableFinished) this.request.destroy();
    else if (!response.complete || !response.readableEnded) this.#drain(response);
  }

  #settle(): void {
    this.rest();
    this.#signal.removeEventListener('abort', this.#onAbort);
  }

  #drain(response: IncomingMessage): void {
    let left = drainBytes;
    const timer = setTimeout(() => response.destroy(), 1_000);
    response.once('close', () => clearTimeout(timer));
    response.on('data', (piece: Buffer) => {
      left -= piece.length;
      if (left < 0) response.destroy();
    });
    response.resume();
  }

  #onAbort = (): void => this.fail(abortError(this.#signal));

  #watchConnect(socket: Socket, connectMs: number): void {
    if (!socket.connecting) return;
    const late = (): void => this.fail(unavailable(unreachable, new Error('WebDAV: no connection in time')));
    const timer = setTimeout(late, connectMs);
    socket.once('connect', () => clearTimeout(timer));
    socket.once('close', () => clearTimeout(timer));
  }
}
