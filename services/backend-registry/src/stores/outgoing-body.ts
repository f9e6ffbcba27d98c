import { Readable } from 'node:stream';
import type { CheckedBody } from './checked-body.ts';

/** One write to a socket; small enough that a slow line shows that it moves. */
const pieceBytes = 256 * 1024;

/** Cuts a checked body into bodies of known lengths, one after the other, as parts of a multipart upload are. */
export class BodyCutter {
  readonly #checked: CheckedBody;
  #left: Buffer[] = [];

  constructor(checked: CheckedBody) {
    this.#checked = checked;
  }

  /** At most `most` bytes, the next ones; null after the last. Throws as CheckedBody.next does. */
  async next(most: number): Promise<Buffer | null> {
    while (this.#left.length === 0) {
      const batch = await this.#checked.next();
      if (!batch) return null;
      this.#left = batch.filter((piece) => piece.length > 0);
    }
    const [first, ...rest] = this.#left;
    if (!first) return null;
    const length = Math.min(most, pieceBytes, first.length);
    this.#left = length === first.length ? rest : [first.subarray(length), ...rest];
    return first.subarray(0, length);
  }
}

/** The next `length` bytes as a stream, for one request. Breaks with what breaks the body; `onMove` hears of each piece. */
export class OutgoingBody extends Readable {
  readonly #cutter: BodyCutter;
  readonly #onMove: () => void;
  #left: number;

  constructor(cutter: BodyCutter, length: number, onMove: () => void) {
    super({ highWaterMark: 1 });
    this.#cutter = cutter;
    this.#left = length;
    this.#onMove = onMove;
  }

  override _read(): void {
    this.#onMove();
    this.#pushNext().catch((error: unknown) => {
      this.destroy(error instanceof Error ? error : new Error('The body broke.', { cause: error }));
    });
  }

  async #pushNext(): Promise<void> {
    const piece = this.#left > 0 ? await this.#cutter.next(this.#left) : null;
    this.#left -= piece?.length ?? 0;
    this.#onMove();
    this.push(piece);
  }
}
