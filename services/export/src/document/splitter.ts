import { ByteWindow } from './byte-window.ts';
import { notJson, pointerOf, Unreadable } from './unreadable.ts';
import { isSpace, ValueEnd } from './value-end.ts';

/** Which keys of an object hold lists of records, and which hold such objects; the values of all others come whole. */
export interface Layout {
  readonly [key: string]: 'records' | Layout;
}

/** A part of a document. Its bytes are valid until the next one is asked for. */
export type Piece =
  | { kind: 'value'; path: readonly string[]; bytes: Buffer }
  | { kind: 'object'; path: readonly string[] }
  | { kind: 'list'; path: readonly string[] }
  | { kind: 'records'; path: readonly string[]; batch: RecordBatch }
  | { kind: 'list_end'; path: readonly string[] };

/** Neighbouring records of a list, with the commas between them. */
export interface RecordBatch {
  /** The place of the first of them in the list. */
  first: number;
  bytes: Buffer;
  /** Where each begins in `bytes`, and where it ends. */
  starts: readonly number[];
  ends: readonly number[];
  /** The place of `bytes` in the stream. */
  offset: number;
}

/** A chunk list of 1 TiB has 6 MiB of base64. */
const valueBytesMax = 16 * 1024 * 1024;
const keyBytesMax = 1_024;
const batchBytes = 64 * 1024;

type State =
  | 'start'
  | 'key_or_end'
  | 'key'
  | 'in_key'
  | 'colon'
  | 'before_value'
  | 'in_value'
  | 'after_value'
  | 'record_or_end'
  | 'before_record'
  | 'in_record'
  | 'after_record'
  | 'done';

interface Level {
  layout: Layout;
  /** Of the object itself. */
  path: readonly string[];
}

/**
 * Splits a JSON object into its values and lists of records while its bytes come in; memory grows with the longest of them.
 * What it lets through has its brackets in order, but may still be no JSON. Throws AppError `validation_failed` for what is
 * no JSON object, Unreadable for what goes beyond a limit, is cut short or goes on after its end.
 */
export class Splitter {
  readonly #window = new ByteWindow();
  readonly #value = new ValueEnd();
  readonly #levels: Level[];
  #state: State = 'start';
  /** The next byte of structure. */
  #at = 0;
  /** The first byte that is still needed. */
  #from = 0;
  #key = '';
  #records = 0;
  #starts: number[] = [];
  #ends: number[] = [];

  constructor(layout: Layout) {
    this.#levels = [{ layout, path: [] }];
  }

  /** Takes the next bytes and gives what is complete by now. To be run to its end. */
  *feed(chunk: Uint8Array): Generator<Piece, void, void> {
    this.#add(chunk);
    while (this.#at < this.#window.length || this.#isInside()) {
      const before = this.#at;
      const state = this.#state;
      yield* this.#step();
      if (this.#at === before && this.#state === state) break;
    }
    yield* this.#flush();
  }

  /** Throws unless the document is complete. */
  end(): void {
    if (this.#state === 'done') return;
    if (this.#state === 'start') throw this.#malformed('The body is empty.');
    throw this.#unreadable('truncated', 'The document ends in the middle.');
  }

  #isInside(): boolean {
    return this.#state === 'in_value' || this.#state === 'in_record' || this.#state === 'in_key';
  }

  #add(chunk: Uint8Array): void {
    const from = this.#isInside() ? this.#from : Math.min(this.#at, this.#window.length);
    this.#window.add(chunk, from);
    this.#from = 0;
    this.#at -= from;
    this.#value.at -= from;
  }

  *#step(): Generator<Piece, void, void> {
    switch (this.#state) {
      case 'in_key':
        return this.#inKey();
      case 'in_value':
        return yield* this.#inValue();
      case 'in_record':
        return yield* this.#inRecord();
      default:
    }
    const { bytes, length } = this.#window;
    let at = this.#at;
    while (at < length && isSpace(bytes[at])) at += 1;
    this.#at = at;
    if (at < length) yield* this.#structure(bytes[at] ?? 0);
  }

  *#structure(byte: number): Generator<Piece, void, void> {
    switch (this.#state) {
      case 'start':
        return this.#start(byte);
      case 'key_or_end':
        return byte === brace.close ? this.#closeObject() : this.#beginKey(byte);
      case 'key':
        return this.#beginKey(byte);
      case 'colon':
        return this.#pass(byte === colon, 'before_value');
      case 'before_value':
        return yield* this.#beginValue(byte);
      case 'after_value':
        return byte === brace.close ? this.#closeObject() : this.#pass(byte === comma, 'key');
      case 'record_or_end':
        return byte === bracket.close ? yield* this.#closeList() : this.#beginRecord();
      case 'before_record':
        return this.#beginRecord();
      case 'after_record':
        if (byte === bracket.close) return yield* this.#closeList();
        return this.#pass(byte === comma, 'before_record');
      default:
        throw this.#unreadable('trailing_bytes', 'Something follows the end of the document.');
    }
  }

  #start(byte: number): void {
    const { bytes, length } = this.#window;
    // A byte order mark is let pass, as RFC 8259 allows.
    if (byte === 0xef && this.#window.offset + this.#at === 0) {
      if (length < 3) return;
      if (bytes[1] === 0xbb && bytes[2] === 0xbf) this.#at = 3;
      else throw this.#malformed('The body is not a JSON object.');
      return;
    }
    if (byte !== brace.open) throw this.#malformed('The body is not a JSON object.');
    this.#at += 1;
    this.#state = 'key_or_end';
  }

  #pass(expected: boolean, next: State): void {
    if (!expected) throw this.#malformed('The body is not valid JSON.');
    this.#at += 1;
    this.#state = next;
  }

  #closeObject(): void {
    this.#at += 1;
    this.#levels.pop();
    this.#state = this.#levels.length === 0 ? 'done' : 'after_value';
  }

  #beginKey(byte: number): void {
    if (byte !== quote) throw this.#malformed('The body is not valid JSON.');
    this.#begin('in_key');
  }

  #begin(state: State): void {
    this.#from = this.#at;
    this.#value.begin(this.#at);
    this.#state = state;
  }

  #inKey(): void {
    if (!this.#advance(keyBytesMax)) return;
    const text = parseJson(this.#window.bytes.subarray(this.#from, this.#value.at));
    if (typeof text !== 'string') throw this.#malformed('The body is not valid JSON.');
    this.#key = text;
    this.#at = this.#value.at;
    this.#state = 'colon';
  }

  *#beginValue(byte: number): Generator<Piece, void, void> {
    const { layout, path } = this.#level();
    const inner = Object.hasOwn(layout, this.#key) ? layout[this.#key] : undefined;
    if (inner === 'records' && byte === bracket.open) {
      this.#at += 1;
      this.#records = 0;
      this.#state = 'record_or_end';
      yield { kind: 'list', path: [...path, this.#key] };
    } else if (typeof inner === 'object' && byte === brace.open) {
      this.#at += 1;
      const own = [...path, this.#key];
      this.#levels.push({ layout: inner, path: own });
      this.#state = 'key_or_end';
      yield { kind: 'object', path: own };
    } else this.#begin('in_value');
  }

  *#inValue(): Generator<Piece, void, void> {
    if (!this.#advance(valueBytesMax)) return;
    this.#at = this.#value.at;
    this.#state = 'after_value';
    const bytes = this.#window.bytes.subarray(this.#from, this.#at);
    yield { kind: 'value', path: [...this.#level().path, this.#key], bytes };
  }

  #beginRecord(): void {
    const { length } = this.#ends;
    this.#value.begin(this.#at);
    if (length === 0) this.#from = this.#at;
    this.#starts.push(this.#at - this.#from);
    this.#state = 'in_record';
  }

  *#inRecord(): Generator<Piece, void, void> {
    if (!this.#advance(valueBytesMax)) return;
    this.#at = this.#value.at;
    this.#ends.push(this.#at - this.#from);
    this.#state = 'after_record';
    if (this.#at - this.#from > batchBytes) yield* this.#flush();
  }

  *#closeList(): Generator<Piece, void, void> {
    yield* this.#flush();
    this.#at += 1;
    this.#state = 'after_value';
    yield { kind: 'list_end', path: [...this.#level().path, this.#key] };
  }

  /** Gives the complete records. One that is begun stays. */
  *#flush(): Generator<Piece, void, void> {
    const last = this.#ends.at(-1);
    if (last === undefined) return;
    const ends = this.#ends;
    const begun = this.#state === 'in_record' ? this.#starts.pop() : undefined;
    const starts = this.#starts;
    const from = this.#from;
    this.#ends = [];
    this.#starts = begun === undefined ? [] : [0];
    this.#from = begun === undefined ? this.#at : from + begun;
    const first = this.#records;
    this.#records += ends.length;
    const bytes = this.#window.bytes.subarray(from, from + last);
    const path = [...this.#level().path, this.#key];
    yield { kind: 'records', path, batch: { first, bytes, starts, ends, offset: this.#window.offset + from } };
  }

  /** Looks for the end of the value that was begun; false where it is not there yet. */
  #advance(bytesMax: number): boolean {
    const { bytes, length } = this.#window;
    const end = this.#value.advance(bytes, length);
    const begun = this.#state === 'in_record' ? this.#from + (this.#starts.at(-1) ?? 0) : this.#from;
    if (this.#value.at - begun > bytesMax)
      throw this.#unreadable('too_large', `A value is longer than ${bytesMax} bytes.`);
    if (end === 'mismatched') throw this.#malformed('The body is not valid JSON.');
    if (end === 'too_deep') throw this.#unreadable('too_deep', 'A value is nested too deep.');
    if (end === 'too_many') throw this.#unreadable('too_large', 'A record holds too many values.');
    return end === 'ended';
  }

  #level(): Level {
    const level = this.#levels.at(-1);
    if (!level) throw new Error('the document has ended');
    return level;
  }

  /** Where reading is. */
  #pointer(): string {
    const path = this.#levels.at(-1)?.path ?? [];
    switch (this.#state) {
      case 'in_value':
      case 'before_value':
      case 'colon':
        return pointerOf(...path, this.#key);
      case 'in_record':
      case 'before_record':
      case 'after_record':
      case 'record_or_end':
        return pointerOf(...path, this.#key, this.#records + this.#ends.length);
      default:
        return pointerOf(...path);
    }
  }

  #unreadable(code: string, detail: string): Unreadable {
    return new Unreadable({ pointer: this.#pointer(), code, detail });
  }

  #malformed(detail: string): Error {
    return notJson(detail, this.#pointer(), this.#window.offset + Math.max(this.#at, this.#value.at));
  }
}

const quote = 0x22;
const comma = 0x2c;
const colon = 0x3a;
const bracket = { open: 0x5b, close: 0x5d };
const brace = { open: 0x7b, close: 0x7d };

function parseJson(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString());
  } catch {
    return undefined;
  }
}
