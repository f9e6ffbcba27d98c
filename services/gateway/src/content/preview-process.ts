import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { isUint8Array } from 'node:util/types';
import { AppError, unavailable } from '@stowage/common/errors';

/** To the child: a picture, and the longest side of its preview in pixels. */
export interface PreviewRequest {
  image: Uint8Array;
  size: number;
}

/** From the child. After `memory` it is about to end. */
export type PreviewReply = { webp: Uint8Array } | { problem: 'unreadable' | 'too_much' | 'memory' };

export interface PreviewLimits {
  pixels: number;
  /** For one picture; starting the child is not counted. */
  timeoutMs: number;
  /** Resident memory of the child. */
  memoryBytes: number;
  /** How many callers may wait while one picture is made. */
  queue: number;
  /** The child ends when it had nothing to do for this long; default 60,000. */
  idleMs?: number;
}

type Outcome = PreviewReply | 'timeout' | 'died' | 'aborted';

const program = fileURLToPath(new URL('./preview-worker.ts', import.meta.url));
const startMs = 30_000;
const defaultIdleMs = 60_000;

/** Makes small WebPs in a child process that can be lost at any moment without harm. */
export class ImagePreviewer {
  readonly #limits: PreviewLimits;
  readonly #line: Line;
  #child: PreviewChild | undefined;
  #idle: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(limits: PreviewLimits) {
    this.#limits = limits;
    this.#line = new Line(limits.queue);
  }

  /** Process id of the child, while there is one. */
  get childPid(): number | undefined {
    return this.#child?.ended === false ? this.#child.pid : undefined;
  }

  /**
   * A WebP of the picture's first page, upright, without metadata, neither side longer than `size` pixels (64–2048,
   * checked by the caller) and never larger than the original. `load` gives the picture, once it is its turn.
   * @throws AppError `unprocessable` for what cannot be read or takes too much, `unavailable` when the queue is full,
   *   the child does not start or the previewer is closed; the signal's reason when it is aborted; what `load` throws.
   */
  async makeWebp(load: () => Promise<Buffer>, size: number, signal: AbortSignal): Promise<Buffer> {
    signal.throwIfAborted();
    this.#refuseWhenClosed();
    const turn = await this.#line.takeTurn(signal);
    signal.throwIfAborted();
    this.#refuseWhenClosed();
    if (turn === 'full') throw unavailable('Too many previews are being made just now.');
    try {
      clearTimeout(this.#idle);
      const image = await load();
      let outcome = await this.#attempt({ image, size }, signal);
      // A child that was already dying when it was asked says nothing about the picture.
      if (outcome === 'died') outcome = await this.#attempt({ image, size }, signal);
      if (outcome === 'aborted') signal.throwIfAborted();
      return webpOf(outcome);
    } finally {
      this.#line.endTurn();
      this.#idle = setTimeout(() => void this.#child?.end(), this.#limits.idleMs ?? defaultIdleMs).unref();
    }
  }

  /** Ends the child; callers that wait or run get `unavailable`. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#idle);
    this.#line.dismiss();
    await this.#child?.end();
  }

  async #attempt(request: PreviewRequest, signal: AbortSignal): Promise<Outcome> {
    this.#refuseWhenClosed();
    if (this.#child === undefined || this.#child.ended) this.#child = new PreviewChild(this.#limits);
    const child = this.#child;
    const ready = await child.ready;
    this.#refuseWhenClosed();
    if (!ready) throw unavailable('Previews of pictures cannot be made just now.', child.fault);
    if (signal.aborted) return 'aborted';
    const outcome = await child.ask(request, this.#limits.timeoutMs, signal);
    this.#refuseWhenClosed();
    return outcome;
  }

  #refuseWhenClosed(): void {
    if (this.#closed) throw unavailable('The service is stopping.');
  }
}

/** One turn at a time, first come first served, with a bounded line of those who wait. */
class Line {
  readonly #places: number;
  readonly #waiting: ((turn: 'yours' | 'none') => void)[] = [];
  #taken = false;

  constructor(places: number) {
    this.#places = places;
  }

  /** `none` after an abort or dismissal; only `yours` must be followed by `endTurn`. */
  async takeTurn(signal: AbortSignal): Promise<'yours' | 'none' | 'full'> {
    if (!this.#taken) {
      this.#taken = true;
      return 'yours';
    }
    if (this.#waiting.length >= this.#places) return 'full';
    const { promise, resolve } = Promise.withResolvers<'yours' | 'none'>();
    const leave = (): void => {
      const place = this.#waiting.indexOf(resolve);
      if (place >= 0) this.#waiting.splice(place, 1);
      resolve('none');
    };
    this.#waiting.push(resolve);
    signal.addEventListener('abort', leave, { once: true });
    const turn = await promise;
    signal.removeEventListener('abort', leave);
    return turn;
  }

  endTurn(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#taken = false;
    else next('yours');
  }

  dismiss(): void {
    for (const resolve of this.#waiting.splice(0)) resolve('none');
  }
}

/** One child process. It never keeps this process alive, and it ends itself when this process is gone. */
class PreviewChild {
  readonly ready: Promise<boolean>;
  readonly #process: ChildProcess;
  ended = false;
  fault: Error | undefined;

  constructor(limits: PreviewLimits) {
    this.#process = fork(program, [String(limits.pixels), String(limits.memoryBytes)], {
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
      execArgv: ['--disable-warning=ExperimentalWarning', '--max-old-space-size=64'],
      // Our secrets are in our environment; what reads hostile pictures gets none of it.
      env: {},
    });
    this.#process.unref();
    this.#process.channel?.unref();
    this.#process.once('exit', () => (this.ended = true));
    this.#process.on('error', (error) => {
      this.fault = error;
      this.ended = true;
    });
    this.ready = this.#start();
  }

  get pid(): number | undefined {
    return this.#process.pid;
  }

  /** One picture; the child is spent unless it answered. */
  async ask(request: PreviewRequest, timeoutMs: number, signal: AbortSignal): Promise<Outcome> {
    const outcome = await this.#firstOf(timeoutMs, signal, () => {
      this.#process.send(request, (error) => {
        if (error !== null) void this.end();
      });
    });
    // What a child says after its time is up must not be taken for the answer to the next picture.
    if (typeof outcome === 'string' || ('problem' in outcome && outcome.problem === 'memory')) void this.end();
    return outcome;
  }

  /** Resolves when the process is gone. */
  async end(): Promise<void> {
    this.ended = true;
    const { pid, exitCode, signalCode } = this.#process;
    if (pid === undefined || exitCode !== null || signalCode !== null) return;
    const exit = once(this.#process, 'exit');
    this.#process.kill('SIGKILL');
    this.#process.ref();
    await exit;
  }

  async #start(): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const timer = setTimeout(() => resolve(false), startMs);
    this.#process.once('message', () => resolve(true));
    this.#process.once('error', () => resolve(false));
    this.#process.once('exit', (code, signal) => {
      this.fault ??= new Error(`The preview process ended (code ${code}, signal ${signal})`);
      resolve(false);
    });
    const ready = await promise;
    clearTimeout(timer);
    if (!ready) void this.end();
    return ready;
  }

  async #firstOf(timeoutMs: number, signal: AbortSignal, begin: () => void): Promise<Outcome> {
    const { promise, resolve } = Promise.withResolvers<Outcome>();
    const answered = (message: unknown): void => resolve(replyOf(message));
    const died = (): void => resolve('died');
    const aborted = (): void => resolve('aborted');
    const timer = setTimeout(() => resolve('timeout'), timeoutMs);
    this.#process.once('message', answered).once('exit', died);
    signal.addEventListener('abort', aborted, { once: true });
    begin();
    const outcome = await promise;
    clearTimeout(timer);
    this.#process.off('message', answered).off('exit', died);
    signal.removeEventListener('abort', aborted);
    return outcome;
  }
}

function replyOf(message: unknown): PreviewReply {
  if (typeof message !== 'object' || message === null) return { problem: 'unreadable' };
  if ('webp' in message && isUint8Array(message.webp)) return { webp: message.webp };
  const problem = 'problem' in message ? message.problem : undefined;
  return { problem: problem === 'too_much' || problem === 'memory' ? problem : 'unreadable' };
}

function webpOf(outcome: Outcome): Buffer {
  if (typeof outcome === 'object' && 'webp' in outcome) return Buffer.from(outcome.webp);
  if (typeof outcome === 'object' && outcome.problem === 'unreadable') {
    throw new AppError('unprocessable', 'The file cannot be read as a picture.');
  }
  throw new AppError('unprocessable', 'The picture takes too much memory or time to preview.');
}
