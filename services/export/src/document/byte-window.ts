/** The bytes of a stream that are still looked at: grows with the longest value, not with the stream. */
export class ByteWindow {
  bytes: Buffer = Buffer.allocUnsafe(64 * 1024);
  /** How many of `bytes` are filled. */
  length = 0;
  /** The place in the stream of the first of `bytes`. */
  offset = 0;

  /** Forgets the bytes before `from` and adds a chunk. Places after `from` move down by it. */
  add(chunk: Uint8Array, from: number): void {
    const kept = this.length - from;
    const wanted = kept + chunk.length;
    const next = wanted > this.bytes.length ? Buffer.allocUnsafe(Math.max(wanted, this.bytes.length * 2)) : this.bytes;
    this.bytes.copy(next, 0, from, this.length);
    next.set(chunk, kept);
    this.bytes = next;
    this.offset += from;
    this.length = wanted;
  }
}
