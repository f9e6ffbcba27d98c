const depthMax = 32;
/** No record has a hundredth of it: thousands of tiny values cost more to refuse than their bytes. */
const valuesMax = 10_000;

const quote = 0x22;
const comma = 0x2c;
const backslash = 0x5c;
const openBracket = 0x5b;
const closeBracket = 0x5d;
const openBrace = 0x7b;
const closeBrace = 0x7d;

/** Where a value ends, or why it can't. */
export type EndOfValue = 'open' | 'ended' | 'mismatched' | 'too_deep' | 'too_many';

/**
 * Finds the end of one JSON value, however its bytes are cut. Brackets and strings are minded; what else is wrong shows when
 * the value is parsed.
 */
export class ValueEnd {
  /** The next byte to look at, in the window. */
  at = 0;
  #depth = 0;
  /** One bit a level: set where it is an object. */
  #objects = 0;
  #values = 0;
  #kind: 'new' | 'nested' | 'string' | 'plain' = 'new';
  #inString = false;

  /** Begins with the value whose first byte is at `at`. */
  begin(at: number): void {
    this.at = at;
    this.#depth = 0;
    this.#values = 0;
    this.#kind = 'new';
    this.#inString = false;
  }

  /** Goes on up to `length`. Where it `ended`, `at` is the byte after the value. */
  advance(bytes: Buffer, length: number): EndOfValue {
    if (this.#kind === 'new' && this.at < length) this.#kind = kindOf(bytes[this.at]);
    if (this.#kind === 'plain') return this.#plain(bytes, length);
    return this.#nested(bytes, length);
  }

  #plain(bytes: Buffer, length: number): EndOfValue {
    let at = this.at;
    while (at < length && !endsPlain(bytes[at])) at += 1;
    this.at = at;
    return at < length ? 'ended' : 'open';
  }

  #nested(bytes: Buffer, length: number): EndOfValue {
    let at = this.at;
    let inString = this.#inString;
    let result: EndOfValue = 'open';
    while (at < length && result === 'open') {
      const byte = bytes[at] ?? 0;
      at += 1;
      if (inString) {
        // The byte after it may not be there yet: then `at` is beyond the window for a while.
        if (byte === backslash) at += 1;
        else if (byte === quote) {
          inString = false;
          if (this.#depth === 0) result = 'ended';
        }
      } else if (byte === quote) inString = true;
      else if (byte === comma) {
        this.#values += 1;
        if (this.#values > valuesMax) result = 'too_many';
      } else if (byte === openBrace || byte === openBracket) result = this.#open(byte === openBrace);
      else if (byte === closeBrace || byte === closeBracket) result = this.#close(byte === closeBrace);
    }
    this.at = at;
    this.#inString = inString;
    return result;
  }

  #open(isObject: boolean): EndOfValue {
    if (this.#depth === depthMax) return 'too_deep';
    const bit = 1 << this.#depth;
    this.#objects = isObject ? this.#objects | bit : this.#objects & ~bit;
    this.#depth += 1;
    return 'open';
  }

  #close(isObject: boolean): EndOfValue {
    if (this.#depth === 0) return 'mismatched';
    this.#depth -= 1;
    if (((this.#objects >>> this.#depth) & 1) !== (isObject ? 1 : 0)) return 'mismatched';
    return this.#depth === 0 ? 'ended' : 'open';
  }
}

function kindOf(byte: number | undefined): 'nested' | 'string' | 'plain' {
  if (byte === openBrace || byte === openBracket) return 'nested';
  return byte === quote ? 'string' : 'plain';
}

function endsPlain(byte: number | undefined): boolean {
  return byte === comma || byte === closeBracket || byte === closeBrace || isSpace(byte);
}

/** JSON's white space. */
export function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}
