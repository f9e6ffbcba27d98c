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
    const ended = Promise.withResolvers<null>();
    const writes = new Set<Promise<void>>();
    let slot = 0;
    let filled = 0;
    let position = 0;
    const flush = (): void => {
      this.#users[slot] = 2;
      this.#worker.postMessage({ slot, length: filled } satisfies RingMessage);
      const write = this.#write(file, slot, filled, position).finally(() => writes.delete(write));
      writes.add(write);
      position += filled;
      filled = 0;
      slot = (slot + 1) % slots;
    };
    const take = async (piece: Buffer): Promise<void> => {
      for (let from = 0; from < piece.length;) {
        while (this.#users[slot] !== 0) await new Promise<void>((resolve) => (this.#wake = resolve));
        const length = Math.min(piece.length - from, slotBytes - filled);
        new Uint8Array(this.#memory, slot * slotBytes + filled, length).set(piece.subarray(from, from + length));
        from += length;
        filled += length;
        if (filled === slotBytes) flush();
      }
    };
    let taking: Promise<void> = Promise.resolve();
    request.on('data', (piece: Buffer) => {
      request.pause();
      taking = take(piece).then(() => void request.resume());
    });
    request.on('end', () => ended.resolve(null));
    request.on('error', ended.reject);
    await ended.promise;
    await taking;
    if (filled > 0) flush();
    await Promise.all(writes);
    this.#worker.postMessage({ slot: null, length: 0 } satisfies RingMessage);
    const [digest] = await Promise.all([this.#digest.promise, file.datasync()]);
    return digest;
  }

  async #write(file: FileHandle, slot: number, length: number, position: number): Promise<void> {
    await file.write(new Uint8Array(this.#memory, slot * slotBytes, length), 0, length, position);
    this.#release(slot);
  }

  #release(slot: number): void {
    this.#users[slot] = (this.#users[slot] ?? 1) - 1;
    if (this.#users[slot] === 0) this.#wake();
  }
}
