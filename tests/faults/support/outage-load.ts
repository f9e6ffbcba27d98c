import { setTimeout as sleep } from 'node:timers/promises';
import { sha256, uploadIdOf } from '../../support/client.ts';
import type { Answer, Client } from '../../support/client.ts';
import type { Random } from '../../support/random.ts';
import { uniqueName } from '../../support/system.ts';
import { append, createUpload, finalize } from '../../support/uploads.ts';

/** A file that was acknowledged. */
export interface Kept {
  id: string;
  sha256: string;
}

/** An upload that was begun before the outage and could not be ended during it. */
export interface Unfinished {
  id: string;
  bytes: Buffer;
}

/** More than is kept in memory, so that a download asks a backend. */
const smallest = 70_000;
const largest = 300_000;
const pauseMs = 100;
/** No request may take longer, whatever is down. */
const hangMs = 30_000;

/** One client that uploads and downloads files of one class, asks for nothing twice, and notes what was refused. */
export class OutageClient {
  readonly kept: Kept[] = [];
  readonly unfinished: Unfinished[] = [];
  readonly failures: string[] = [];
  readonly uploadMs: number[] = [];
  readonly downloadMs: number[] = [];
  /** Uploads that were begun before this (of the clock that nobody sets) may have landed where it is dark now. */
  outageSince = Number.POSITIVE_INFINITY;
  readonly #client: Client;
  readonly #fileClass: string;
  readonly #random: Random;

  constructor(client: Client, fileClass: string, random: Random) {
    this.#client = client;
    this.#fileClass = fileClass;
    this.#random = random;
  }

  /** Until `stopped`; downloads only what is in `readable`, which has a copy elsewhere. */
  async run(stopped: () => boolean, readable: readonly Kept[]): Promise<void> {
    while (!stopped()) {
      await this.upload();
      const file = readable[this.#random.integer(0, readable.length - 1)];
      if (file) await this.download(file);
      await sleep(pauseMs);
    }
  }

  async upload(): Promise<void> {
    const begunAt = performance.now();
    const bytes = this.#random.bytes(this.#random.integer(smallest, largest));
    const metadata = { filename: uniqueName(), file_class: this.#fileClass };
    const atOnce = this.#random.chance(0.5);
    const wish = { length: bytes.length, metadata, ...(atOnce ? { body: bytes } : {}) };
    const made = await this.#ask(() => createUpload(this.#client, wish));
    if (made?.status !== 201) return this.#failed('POST /files', made);
    const upload = { id: uploadIdOf(made), bytes };
    const sent = atOnce ? made : await this.#ask(() => append(this.#client, `/files/${upload.id}`, 0, bytes));
    if (sent?.status !== 204 && sent?.status !== 201) return this.#stuck(upload, begunAt, 'PATCH', sent);
    const answer = await this.#ask(() => finalize(this.#client, upload));
    if (answer?.status !== 201) return this.#stuck(upload, begunAt, 'finalize', answer);
    this.kept.push({ id: String(answer.json['id']), sha256: sha256(bytes) });
    if (begunAt > this.outageSince) this.uploadMs.push(performance.now() - begunAt);
  }

  async download(file: Kept): Promise<void> {
    const begunAt = performance.now();
    const answer = await this.#ask(() => this.#client.get(`/api/files/${file.id}/download`));
    if (answer?.status !== 200) return this.#failed('download', answer);
    if (sha256(answer.bytes) !== file.sha256) this.failures.push(`${file.id} came with other bytes`);
    if (begunAt > this.outageSince) this.downloadMs.push(performance.now() - begunAt);
  }

  /** Brings an upload to its end that could not be ended before. */
  async goOn({ id, bytes }: Unfinished): Promise<boolean> {
    const head = await this.#client.tus('HEAD', `/files/${id}`);
    const offset = Number(head.headers.get('upload-offset'));
    if (head.status !== 200) return false;
    if (offset < bytes.length) {
      const sent = await append(this.#client, `/files/${id}`, offset, bytes.subarray(offset));
      if (sent.status !== 204) return false;
    }
    const answer = await finalize(this.#client, { id });
    if (answer.status !== 201 && answer.status !== 200) return false;
    this.kept.push({ id: String(answer.json['id']), sha256: sha256(bytes) });
    return true;
  }

  /** What has begun before all went dark may have to wait for the light, or to be asked again: its bytes are nowhere else. */
  #stuck(upload: Unfinished, begunAt: number, what: string, answer: Answer | null): void {
    const waits = answer === null || answer.status === 503 || answer.status === 202;
    if (begunAt < this.outageSince && waits) this.unfinished.push(upload);
    else this.#failed(`${what} of ${upload.id}`, answer);
  }

  #failed(what: string, answer: Answer | null): void {
    const at = Math.round(performance.now() - this.outageSince);
    const why = answer === null ? 'no answer' : `${answer.status} ${answer.bytes.toString().slice(0, 200)}`;
    this.failures.push(`${this.#fileClass}, ${at} ms after: ${what}: ${why}`);
  }

  async #ask(call: () => Promise<Answer>): Promise<Answer | null> {
    const late = new AbortController();
    const hang = sleep(hangMs, null, { signal: late.signal }).catch(() => null);
    const answer = await Promise.race([call().catch(() => null), hang]);
    late.abort();
    return answer;
  }
}
