import type { FileHandle } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { AppError, unavailable } from '@stowage/common/errors';
import type { ByteRange } from './blob-store.ts';

const pieceBytes = 1024 * 1024;

/**
 * The bytes of a range of an open file, in pieces of 1 MiB. Owns the handle: it is closed at the end, on an error and
 * when the stream is destroyed. Breaks when the file ends before the range does; never ends short.
 */
export class BlobStream extends Readable {
  readonly #handle: FileHandle;
  readonly #end: number;
  readonly #signal: AbortSignal;
  #position: number;
  #reading: Promise<void> | null = null;

  constructor(handle: FileHandle, range: ByteRange, signal: AbortSignal) {
    super({ highWaterMark: pieceBytes });
    this.#handle = handle;
    this.#position = range.start;
    this.#end = range.end;
    this.#signal = signal;
    // A caller may have left before anybody listens: that must not bring the process down.
    this.on('error', () => undefined);
    if (signal.aborted) this.#onAbort();
    signal.addEventListener('abort', this.#onAbort, { once: true });
  }

  override _read(): void {
    const wanted = Math.min(pieceBytes, this.#end - this.#position);
    if (wanted <= 0) {
      this.push(null);
      return;
    }
    this.#reading = this.#readPiece(wanted).catch((error: unknown) => {
      this.destroy(unavailable('The content can not be read just now.', error));
    });
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.#signal.removeEventListener('abort', this.#onAbort);
    // The number of a closed handle may be given to another file: a read under way must end first.
    void Promise.resolve(this.#reading)
      .then(() => this.#handle.close())
      .then(
        () => callback(error),
        (closing: unknown) => callback(error ?? unavailable('The content can not be read just now.', closing)),
      );
  }

  #onAbort = (): void => {
    const reason: unknown = this.#signal.reason;
    this.destroy(reason instanceof AppError ? reason : unavailable('The request was cancelled.'));
  };

  async #readPiece(wanted: number): Promise<void> {
    const { buffer, bytesRead } = await this.#handle.read(Buffer.allocUnsafeSlow(wanted), 0, wanted, this.#position);
    this.#reading = null;
    if (bytesRead === 0) {
      this.destroy(unavailable('The content is shorter than it should be.'));
      return;
    }
    this.#position += bytesRead;
    this.push(bytesRead === wanted ? buffer : buffer.subarray(0, bytesRead));
  }
}
