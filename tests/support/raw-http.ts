import { once } from 'node:events';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { hostAndPort } from './host-and-port.ts';

/** An answer as it came over the wire; header names are lower case. */
export interface RawAnswer {
  status: number;
  headers: Record<string, string>;
  body: Buffer;
}

export type HeaderLines = readonly (readonly [name: string, value: string])[];

/** One HTTP/1.1 connection that the test speaks on byte by byte: half bodies, doubled headers, cuts. */
export class RawConnection {
  readonly #socket: Socket;
  #received: Buffer = Buffer.alloc(0);
  #closed = false;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (piece: Buffer) => {
      this.#received = Buffer.concat([this.#received, piece]);
    });
    socket.on('close', () => {
      this.#closed = true;
    });
    // A cut shows as a missing answer.
    socket.on('error', () => undefined);
  }

  static async open(url: string): Promise<RawConnection> {
    const socket = connect({ ...hostAndPort(url), noDelay: true });
    await once(socket, 'connect');
    return new RawConnection(socket);
  }

  /** Sends a request's head; the body is up to send(). */
  async request(method: string, path: string, headers: HeaderLines): Promise<void> {
    const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join('');
    await this.send(`${method} ${path} HTTP/1.1\r\nhost: stowage.test\r\n${lines}\r\n`);
  }

  /** Resolves when the system took the bytes. */
  async send(bytes: Buffer | string): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#socket.write(bytes, (error) => (error ? reject(error) : resolve()));
    });
  }

  /** One piece of a chunked body; an empty one ends it. */
  async sendChunk(bytes: Buffer): Promise<void> {
    await this.send(Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from('\r\n')]));
  }

  /** The next answer (100 Continue counts as one). Throws where the connection closes before, or after `limitMs`. */
  async answer(limitMs = 20_000): Promise<RawAnswer> {
    const deadline = Date.now() + limitMs;
    for (;;) {
      const parsed = parseAnswer(this.#received, this.#closed);
      if (parsed) {
        this.#received = this.#received.subarray(parsed.length);
        return parsed.answer;
      }
      if (this.#closed) throw new Error('the connection closed before the answer was whole');
      if (Date.now() > deadline) throw new Error('no answer came in time');
      await this.#more(deadline - Date.now());
    }
  }

  /** The answer, or null where the connection closes without one. */
  async answerOrClose(limitMs = 20_000): Promise<RawAnswer | null> {
    try {
      return await this.answer(limitMs);
    } catch (error) {
      if (this.#closed) return null;
      throw error;
    }
  }

  /** Whether anything has arrived that no answer() took. */
  get pending(): boolean {
    return this.#received.length > 0;
  }

  /** Resolves when the server has closed the connection. */
  async closed(limitMs: number): Promise<void> {
    const deadline = Date.now() + limitMs;
    while (!this.#closed) {
      if (Date.now() > deadline) throw new Error('the connection was not closed in time');
      await this.#more(deadline - Date.now());
    }
  }

  /** Breaks the connection as a crashed client would. */
  cut(): void {
    this.#socket.destroy();
  }

  async #more(limitMs: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, Math.max(1, limitMs));
    const wake = (): void => resolve();
    this.#socket.once('data', wake).once('close', wake);
    await promise;
    clearTimeout(timer);
    this.#socket.off('data', wake).off('close', wake);
  }
}

function parseAnswer(bytes: Buffer, closed: boolean): { answer: RawAnswer; length: number } | null {
  const headEnd = bytes.indexOf('\r\n\r\n');
  if (headEnd < 0) return null;
  const [statusLine = '', ...lines] = bytes.toString('latin1', 0, headEnd).split('\r\n');
  const status = Number(statusLine.split(' ')[1]);
  const headers: Record<string, string> = {};
  for (const line of lines)
    headers[line.slice(0, line.indexOf(':')).toLowerCase()] = line.slice(line.indexOf(':') + 1).trim();
  const start = headEnd + 4;
  const given = headers['content-length'];
  const bodyless = status < 200 || status === 204 || status === 304;
  const length = bodyless ? 0 : given === undefined ? null : Number(given);
  if (length === null ? !closed : bytes.length < start + length) return null;
  const end = length === null ? bytes.length : start + length;
  return { answer: { status, headers, body: bytes.subarray(start, end) }, length: end };
}
