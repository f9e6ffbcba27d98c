import { Readable } from 'node:stream';
import { unavailable } from '@stowage/common/errors';

/** A short body that may have to be sent more than once. Once it was replayed, all of it is in memory. */
export class KeptBody {
  readonly #body: Readable;
  #bytes: Buffer | null = null;

  constructor(body: Readable) {
    this.#body = body;
  }

  /** The body from its beginning, as often as wanted. Throws `unavailable` where it breaks off. */
  async replay(): Promise<Readable> {
    this.#bytes ??= await readAll(this.#body);
    return copyOf(this.#bytes);
  }

  /** As replay, for the last time: what is not in memory yet flows on. */
  rest(): Readable {
    return this.#bytes === null ? this.#body : copyOf(this.#bytes);
  }
}

async function readAll(body: Readable): Promise<Buffer> {
  const pieces: Buffer[] = [];
  try {
    // A refusal must leave the body's socket as it is: the client is still to read why.
    for await (const piece of body.iterator({ destroyOnReturn: false })) pieces.push(piece);
  } catch (error) {
    throw unavailable('The body broke off.', error);
  }
  return Buffer.concat(pieces);
}

/** Whoever stores it frees its pieces. */
function copyOf(bytes: Buffer): Readable {
  return Readable.from(bytes.length > 0 ? [Buffer.from(bytes)] : [], { objectMode: false });
}
