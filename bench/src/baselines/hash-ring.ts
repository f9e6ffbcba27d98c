import { once } from 'node:events';
import type { FileHandle } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';

export const slotBytes = 1 << 20;
const slots = 16;

/** A slot that is full; or null: the end, which is answered with the digest. */
export interface RingMessage {
  slot: number | null;
  length: number;
}

/**
 * Writes a body from slots of shared memory while a worker hashes the same slots: each byte is copied once, and hashed
 * off the event loop. One body at a time.
 */
export class HashRing {
  readonly #memory = new SharedArrayBuffer(slots * slotBytes);
  readonly #bytes = new Uint8Array(this.#memory);
  readonly #worker = new Worker(join(import.meta.dirname, 'hash-worker.ts'), { workerData: this.#memory });
  /** How many still need a slot: the write and the worker. */
  readonly #users = new Uint8Array(slots);
  #wake: () => void = () => undefined;
  #digest = Promise.withResolvers<string>();

  constructor() {
    this.#worker.on('message', ({ slot, digest }: { slot: number | null; digest?: string }) => {
      if (slot === null) this.#digest.resolve(digest ?? '');
      else this.#release(slot);
    });
  }

  /** Waits until the worker runs. */
  async ready(): Promise<void> {
    await once(this.#worker, 'online');
  }

  /** Gives the SHA-256 once all is written, and flushed. */
  async receive(request: IncomingMessage, file: FileHandle): Promise<string> {
    this.#digest = Promise.withResolvers();
    const writes: Promise<void>[] = [];
    let slot = 0;
    let filled = 0;
    let position = 0;
    const flush = (): void => {
      this.#users[slot] = 2;
      this.#worker.postMessage({ slot, length: filled } satisfies RingMessage);
      writes.push(this.#write(file, slot, filled, position));
      position += filled;
      filled = 0;
      slot = (slot + 1) % slots;
    };
    /** Gives what did not find a free slot. */
    const take = (piece: Buffer): Buffer => {
      let rest = piece;
      while (rest.length > 0 && this.#users[slot] === 0) {
        const some = rest.subarray(0, slotBytes - filled);
        this.#bytes.set(some, slot * slotBytes + filled);
        filled += some.length;
        rest = rest.subarray(some.length);
        if (filled === slotBytes) flush();
      }
      return rest;
    };
    await this.#takeAll(request, take);
    if (filled > 0) flush();
    await Promise.all(writes);
    this.#worker.postMessage({ slot: null, length: 0 } satisfies RingMessage);
    const [digest] = await Promise.all([this.#digest.promise, file.datasync()]);
    return digest;
  }

  /** Hands all pieces over, and pauses the body while there is no free slot. */
  async #takeAll(request: IncomingMessage, take: (piece: Buffer) => Buffer): Promise<void> {
    const ended = Promise.withResolvers<void>();
    let rest: Buffer = Buffer.alloc(0);
    let over = false;
    const goOn = (): void => {
      if (rest.length === 0) return;
      rest = take(rest);
      if (rest.length > 0) return;
      if (over) ended.resolve();
      else request.resume();
    };
    this.#wake = goOn;
    request.on('data', (piece: Buffer) => {
      rest = take(piece);
      if (rest.length > 0) request.pause();
    });
    request.on('end', () => {
      over = true;
      if (rest.length === 0) ended.resolve();
    });
    request.on('error', ended.reject);
    await ended.promise;
    this.#wake = () => undefined;
  }

  async #write(file: FileHandle, slot: number, length: number, position: number): Promise<void> {
    await file.write(this.#bytes, slot * slotBytes, length, position);
    this.#release(slot);
  }

  #release(slot: number): void {
    this.#users[slot] = (this.#users[slot] ?? 1) - 1;
    if (this.#users[slot] === 0) this.#wake();
  }
}
