import { once } from 'node:events';
import { connect } from 'node:net';
import type { Socket } from 'node:net';

/** An answer, whose body was counted and, where it was asked for, kept. */
export interface Answer {
  status: number;
  /** Status line and headers as they came. */
  head: string;
  bodyBytes: number;
  body: string;
}

const headEnd = Buffer.from('\r\n\r\n');
const writeBytes = 1 << 20;
/** Random, so that nothing on the way can make it smaller. */
const filler = Buffer.alloc(writeBytes);
let state = 0x9e3779b9;
for (let at = 0; at < filler.length; at += 4) {
  state = Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9;
  filler.writeInt32LE(state | 0, at);
}

/** The first `bytes` of what all bodies are filled with. */
export function fillerOf(bytes: number): Buffer {
  return filler.subarray(0, bytes);
}

/**
 * One HTTP/1.1 connection that is kept alive. It reads every answer into the same buffer and parses no more than it
 * needs, so that the driver takes as little as possible of the cores that it shares with what it measures.
 */
export class Connection {
  readonly #socket: Socket;
  #answered = Promise.withResolvers<Answer>();
  #waiting = false;
  #keep = false;
  #pieces: Buffer[] = [];
  #head = '';
  #status = 0;
  #expected = 0;
  #received = 0;
  #inBody = false;

  private constructor(port: number, readBytes: number) {
    this.#socket = connect({
      host: '127.0.0.1',
      port,
      noDelay: true,
      onread: {
        buffer: Buffer.allocUnsafe(readBytes),
        callback: (length, buffer) => {
          this.#take(Buffer.from(buffer.buffer, buffer.byteOffset, length));
          return true;
        },
      },
    });
    this.#socket.on('error', (error) => this.#fail(error));
    this.#socket.on('close', () => this.#fail(new Error('the server closed the connection')));
  }

  static async open(port: number, readBytes: number): Promise<Connection> {
    const connection = new Connection(port, readBytes);
    await once(connection.#socket, 'connect');
    return connection;
  }

  close(): void {
    this.#waiting = false;
    this.#socket.destroy();
  }

  /** Sends a request that is one buffer. */
  async send(request: Buffer, keep = false): Promise<Answer> {
    const answer = this.#expect(keep);
    this.#socket.write(request);
    return answer;
  }

  /** Sends a head, then `bytes` of filler as fast as the server takes them. */
  async sendLong(head: Buffer, bytes: number, keep = false): Promise<Answer> {
    const answer = this.#expect(keep);
    // A refusal is thrown below; until then nobody listens.
    answer.catch(() => undefined);
    this.#socket.write(head);
    // Two under way, so that the kernel never waits for this process to hear that it took one.
    let underWay: Promise<unknown> = Promise.resolve();
    for (let sent = 0; sent < bytes && this.#waiting; sent += writeBytes) {
      const written = this.#write(filler.subarray(0, bytes - sent));
      await underWay;
      underWay = written;
    }
    return answer;
  }

  /** Settles once the kernel has taken it, or never will. */
  async #write(bytes: Buffer): Promise<void> {
    await new Promise<unknown>((resolve) => this.#socket.write(bytes, resolve));
  }

  #expect(keep: boolean): Promise<Answer> {
    if (this.#waiting) throw new Error('the connection is in use');
    if (this.#socket.destroyed) throw new Error('the connection is closed');
    this.#answered = Promise.withResolvers();
    this.#waiting = true;
    this.#keep = keep;
    return this.#answered.promise;
  }

  #take(bytes: Buffer): void {
    if (this.#inBody) this.#takeBody(bytes);
    else this.#takeHead(bytes);
  }

  #takeHead(bytes: Buffer): void {
    const whole = this.#pieces.length === 0 ? bytes : Buffer.concat([...this.#pieces, bytes]);
    const end = whole.indexOf(headEnd);
    if (end < 0) {
      // The buffer is read into again.
      this.#pieces = [Buffer.from(whole)];
      return;
    }
    this.#pieces = [];
    this.#head = whole.toString('latin1', 0, end);
    this.#status = Number(this.#head.slice(9, 12));
    this.#received = 0;
    this.#expected = this.#status === 204 || this.#status === 304 ? 0 : lengthOf(this.#head);
    this.#inBody = true;
    this.#takeBody(whole.subarray(end + headEnd.length));
  }

  #takeBody(bytes: Buffer): void {
    this.#received += bytes.length;
    // What failed is always kept, so that it can be told.
    if ((this.#keep || this.#status >= 400) && bytes.length > 0) this.#pieces.push(Buffer.from(bytes));
    if (this.#received < this.#expected) return;
    if (this.#received > this.#expected) return this.#fail(new Error('more bytes came than were announced'));
    const body = this.#pieces.length > 0 ? Buffer.concat(this.#pieces).toString() : '';
    this.#pieces = [];
    this.#inBody = false;
    this.#waiting = false;
    this.#answered.resolve({ status: this.#status, head: this.#head, bodyBytes: this.#received, body });
  }

  #fail(error: Error): void {
    if (this.#waiting) this.#answered.reject(error);
    this.#waiting = false;
    this.#socket.destroy();
  }
}

function lengthOf(head: string): number {
  const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
  if (length === undefined) throw new Error(`the driver reads bodies of known length only:\n${head}`);
  return Number(length);
}

/** The value of a header of an answer. */
export function headerOf(answer: Answer, name: string): string {
  const value = new RegExp(`\\r\\n${name}: *([^\\r]*)`, 'i').exec(answer.head)?.[1];
  if (value === undefined) throw new Error(`no ${name} in\n${answer.head}`);
  return value;
}

/** Throws, with the answer, where the status is another one. */
export function expectStatus(answer: Answer, status: number, what: string): Answer {
  if (answer.status === status) return answer;
  throw new Error(`${what}: expected ${status}, got\n${answer.head}\n\n${answer.body.slice(0, 2_000)}`);
}

/** Status line and headers of a request, with the length of its body. */
export function headOf(
  method: string,
  path: string,
  bodyBytes: number | null,
  headers: Readonly<Record<string, string>>,
): Buffer {
  const lines = [`${method} ${path} HTTP/1.1`, 'Host: 127.0.0.1'];
  for (const [name, value] of Object.entries(headers)) lines.push(`${name}: ${value}`);
  if (bodyBytes !== null) lines.push(`Content-Length: ${bodyBytes}`);
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n`);
}
