const lineFeed = 0x0a;
const comma = 0x2c;

/** Makes the elements of a JSON array from lines that come in pieces of any size. */
export class RecordLines {
  /** How many lines are whole so far. */
  count = 0;
  /** The end of a line was seen, and what follows may be the end of all. */
  #held = true;

  /** A comma and LF between two lines, LF before the first. */
  asElements(bytes: Buffer): Buffer {
    // A line end within grows by its comma; one that was held back comes to it as a whole.
    const out = Buffer.allocUnsafeSlow(bytes.length + countOf(bytes) + 2);
    let written = 0;
    for (let start = 0; start < bytes.length;) {
      if (this.#held) {
        if (this.count > 0) out[written++] = comma;
        out[written++] = lineFeed;
        this.#held = false;
      }
      const end = bytes.indexOf(lineFeed, start);
      written += bytes.copy(out, written, start, end < 0 ? bytes.length : end);
      if (end < 0) break;
      this.count += 1;
      this.#held = true;
      start = end + 1;
    }
    return out.subarray(0, written);
  }
}

function countOf(bytes: Buffer): number {
  let count = 0;
  for (let at = bytes.indexOf(lineFeed); at >= 0; at = bytes.indexOf(lineFeed, at + 1)) count += 1;
  return count;
}
