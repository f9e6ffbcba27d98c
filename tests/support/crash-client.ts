import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Answer, Client } from './client.ts';
import type { Random } from './random.ts';
import { append, createUpload, finalize } from './uploads.ts';
import type { Entry, Journal } from './crash-journal.ts';

const kibibyte = 1024;
const retryMs = 100;

/** What a crash client does, and takes. */
export interface Habits {
  /** After how long a request counts as hanging. */
  hangMs: number;
  /** Statuses beside 503 and 423 that the fault of this test excuses. */
  excused: readonly number[];
  /** Whether bytes that complete an upload may be gone until it was finalized, as after a power cut. */
  powerCuts: boolean;
  /** How many of its files it deletes again. */
  deletes: number;
  /** The largest file, in bytes. */
  largest: number;
}

const usualHabits: Habits = {
  hangMs: 30_000,
  excused: [],
  powerCuts: false,
  deletes: 0,
  largest: 6 * kibibyte * kibibyte,
};

interface Sending {
  entry: Entry;
  bytes: Buffer;
  id: string;
  path: string;
  deferred: boolean;
  /** The highest offset that the service has told. */
  told: number;
  /** Up to where bytes were ever sent. */
  sent: number;
}

/** Uploads and finalizes file after file, through every crash, and notes what it was told. */
export class CrashClient {
  readonly #client: Client;
  readonly #directory: string;
  readonly #random: Random;
  readonly #journal: Journal;
  readonly #label: string;
  readonly #habits: Habits;
  #made = 0;

  constructor(
    client: Client,
    needs: { directory: string; random: Random; journal: Journal; label: string },
    habits: Partial<Habits> = {},
  ) {
    this.#habits = { ...usualHabits, ...habits };
    this.#client = client;
    this.#directory = needs.directory;
    this.#random = needs.random;
    this.#journal = needs.journal;
    this.#label = needs.label;
  }

  /** Until `stopped`; the last file is brought to its end, so the service must be there by then. */
  async run(stopped: () => boolean): Promise<void> {
    while (!stopped()) {
      await this.makeFile();
      await sleep(this.#random.integer(0, 25));
    }
  }

  /** One file, from its upload to its end. */
  async makeFile(): Promise<void> {
    const random = this.#random;
    const size = random.chance(0.12)
      ? random.integer(Math.floor(this.#habits.largest / 6), this.#habits.largest)
      : random.integer(0, 64 * kibibyte);
    const bytes = random.bytes(size);
    this.#made += 1;
    const entry = this.#journal.intend(`${this.#label}-${this.#made}.bin`, bytes);
    const sending = await this.#create(entry, bytes);
    while (sending.told < size || sending.deferred) await this.#send(sending);
    await this.#finalize(sending);
    if (entry.fileId !== null && random.chance(this.#habits.deletes)) await this.#delete(entry);
  }

  async #delete(entry: Entry): Promise<void> {
    this.#journal.settle(entry, { removal: 'asked' });
    const path = `/api/files/${entry.fileId ?? ''}`;
    for (;;) {
      const answer = await this.#ask(`DELETE ${path}`, () => this.#client.delete(path));
      if (answer?.status === 200) return this.#journal.settle(entry, { removal: 'ok' });
      await this.#putOff(answer, `DELETE ${path}`);
    }
  }

  async #create(entry: Entry, bytes: Buffer): Promise<Sending> {
    const deferred = this.#random.chance(0.2);
    const metadata = { filename: entry.name, directory_id: this.#directory, on_conflict: 'rename' };
    for (;;) {
      const first = this.#random.chance(0.3)
        ? bytes.subarray(0, this.#random.integer(0, bytes.length))
        : Buffer.alloc(0);
      const body = first.length > 0 ? { body: first } : {};
      const answer = await this.#ask(`POST ${entry.name}`, () =>
        createUpload(this.#client, { length: deferred ? null : bytes.length, metadata, ...body }),
      );
      if (answer?.status === 201) {
        const path = answer.headers.get('location') ?? '';
        const told = Number(answer.headers.get('upload-offset'));
        if (told !== first.length) this.#journal.violated(`POST ${path} took ${first.length} bytes and tells ${told}`);
        return { entry, bytes, id: path.split('/').at(-1) ?? '', path, deferred, told, sent: first.length };
      }
      await this.#putOff(answer, 'POST /files');
    }
  }

  async #send(sending: Sending): Promise<void> {
    const { bytes, told, path } = sending;
    const rest = bytes.length - told;
    const end = this.#random.chance(0.4) ? bytes.length : told + this.#random.integer(0, rest);
    const piece = bytes.subarray(told, end);
    const headers: Record<string, string> = {};
    if (sending.deferred && end === bytes.length) headers['upload-length'] = String(bytes.length);
    const checked = this.#random.chance(0.25);
    if (checked) headers['upload-checksum'] = `sha1 ${createHash('sha1').update(piece).digest('base64')}`;
    const sentBefore = sending.sent;
    sending.sent = Math.max(sending.sent, end);
    const answer = await this.#ask(`PATCH ${path} ${told}-${end}`, () =>
      append(this.#client, path, told, piece, headers),
    );
    if (answer?.status === 204) {
      this.#note(sending, Number(answer.headers.get('upload-offset')), `PATCH of ${told}-${end}`);
      if (sending.told !== end)
        this.#journal.violated(`${path}: PATCH of ${told}-${end} was acknowledged as ${sending.told}`);
      if (headers['upload-length']) sending.deferred = false;
      return;
    }
    const conflict = answer?.status === 409 && answer.json['code'] === 'offset_conflict';
    if (!conflict && answer?.status !== 423) await this.#putOff(answer, `PATCH ${path}`);
    await this.#look(sending);
    const halfChecked = checked && sending.told > told && sending.told < end;
    if (halfChecked && sentBefore < sending.told)
      this.#journal.violated(`${path}: part of an unchecked body counts (${sending.told})`);
  }

  /** Asks for the offset, for as long as it takes. */
  async #look(sending: Sending): Promise<void> {
    const { path } = sending;
    for (;;) {
      const answer = await this.#ask(`HEAD ${path}`, () => this.#client.tus('HEAD', path));
      if (answer?.status === 200) {
        this.#note(sending, Number(answer.headers.get('upload-offset')), 'HEAD');
        sending.deferred = answer.headers.get('upload-defer-length') === '1';
        return;
      }
      await this.#putOff(answer, `HEAD ${path}`);
    }
  }

  #note(sending: Sending, offset: number, what: string): void {
    const { path, told, sent } = sending;
    const excused = this.#habits.powerCuts && told === sending.bytes.length;
    if (offset < told && !excused) this.#journal.violated(`${path}: ${what} tells ${offset}, after ${told} was told`);
    if (offset > sent)
      this.#journal.violated(`${path}: ${what} tells ${offset}, but only ${sent} bytes were ever sent`);
    sending.told = offset;
  }

  async #finalize(sending: Sending): Promise<void> {
    const { entry, path, bytes } = sending;
    const body = this.#random.chance(0.5) ? { sha256: entry.sha256 } : {};
    for (;;) {
      const answer = await this.#ask(`finalize ${path}`, () => finalize(this.#client, sending, body));
      if (answer?.status === 201 || answer?.status === 200) {
        const { id, name, size, sha256 } = answer.json;
        const right = name === entry.name && size === entry.size && sha256 === entry.sha256;
        if (!right)
          this.#journal.violated(`${path}: finalized as ${JSON.stringify(answer.json)}, not ${JSON.stringify(entry)}`);
        this.#journal.settle(entry, { outcome: 'ok', fileId: id });
        return;
      }
      const shrunk = this.#habits.powerCuts && answer?.json['code'] === 'upload_incomplete';
      if (shrunk) {
        await this.#look(sending);
        while (sending.told < bytes.length) await this.#send(sending);
        continue;
      }
      if (answer?.status !== 202) await this.#putOff(answer, `finalize of ${path}`);
      if (answer === null && this.#random.chance(0.2)) {
        this.#journal.settle(entry, { outcome: 'unknown' });
        return;
      }
    }
  }

  /** The answer, or null where the connection broke. */
  async #ask(what: string, call: () => Promise<Answer>): Promise<Answer | null> {
    const answered = this.#journal.calling(what);
    const late = new AbortController();
    const { hangMs } = this.#habits;
    const hang = sleep(hangMs, 'hang' as const, { signal: late.signal }).catch(() => 'hang' as const);
    const outcome = await Promise.race([call().catch(() => null), hang]);
    late.abort();
    if (outcome === 'hang') this.#journal.violated(`${what} hung for ${hangMs} ms`);
    const answer = outcome === 'hang' ? null : outcome;
    answered(answer?.status ?? null);
    return answer;
  }

  /** What a fault excuses: no answer, 503, 423 and what the habits say. Anything else breaks a promise. */
  async #putOff(answer: Answer | null, what: string): Promise<void> {
    this.#journal.interruptions += 1;
    if (answer && ![503, 423, ...this.#habits.excused].includes(answer.status)) {
      this.#journal.violated(`${what} was answered with ${answer.status} ${answer.bytes.toString().slice(0, 300)}`);
      throw new Error(this.#journal.violations.at(-1));
    }
    await sleep(retryMs);
  }
}
