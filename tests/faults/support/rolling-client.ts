import { setTimeout as sleep } from 'node:timers/promises';
import { Client, sha256, uploadIdOf } from '../../support/client.ts';
import type { Answer } from '../../support/client.ts';
import type { Random } from '../../support/random.ts';
import { uniqueName } from '../../support/system.ts';
import { append, createUpload, finalize } from '../../support/uploads.ts';

const kibibyte = 1024;
/** What a careful client does: as tus-js-client, and as any that honours Retry-After. */
const mostTries = 8;
const pauseMs = 500;

/** A client of several gateways that uploads, downloads and lists, and retries as a standard one would. */
export class RollingClient {
  /** What a user would have seen. */
  readonly failures: string[] = [];
  /** What the client met and got over, by kind. */
  readonly met: Record<string, number> = {};
  requests = 0;
  files = 0;
  readonly #clients: readonly Client[];
  readonly #directory: string;
  readonly #random: Random;
  #turn: number;

  constructor(urls: readonly string[], token: string, directory: string, random: Random) {
    this.#clients = urls.map((url) => new Client(url, token));
    this.#directory = directory;
    this.#random = random;
    this.#turn = random.integer(0, 1);
  }

  async run(stopped: () => boolean): Promise<void> {
    while (!stopped()) {
      await this.#fileFromEndToEnd().catch((error: unknown) => this.failures.push(String(error)));
      await sleep(this.#random.integer(300, 1_000));
    }
  }

  async #fileFromEndToEnd(): Promise<void> {
    const bytes = this.#random.bytes(this.#random.integer(1, 300 * kibibyte));
    const metadata = { filename: uniqueName(), directory_id: this.#directory };
    const made = await this.#ask('POST /files', [201], (client) =>
      createUpload(client, { length: bytes.length, metadata }),
    );
    const upload = { id: uploadIdOf(made) };
    await this.#send(`/files/${upload.id}`, bytes);
    const { json } = await this.#ask('finalize', [200, 201], (client) => finalize(client, upload));
    if (json['sha256'] !== sha256(bytes)) throw new Error('a file was made of other bytes');
    if (sha256(await this.#download(`/api/files/${String(json['id'])}/download`, bytes.length)) !== sha256(bytes))
      throw new Error('a download gave other bytes');
    await this.#ask('listing', [200], (client) => client.get(`/api/directories/${this.#directory}/children`));
    this.files += 1;
  }

  /** In pieces; after one that failed it asks where to go on. */
  async #send(path: string, bytes: Buffer): Promise<void> {
    let offset = 0;
    while (offset < bytes.length) {
      const end = Math.min(bytes.length, offset + this.#random.integer(1, 300 * kibibyte));
      const from = offset;
      const sent = await this.#once('PATCH', (client) => append(client, path, from, bytes.subarray(from, end)));
      if (sent?.status === 204) {
        offset = end;
        continue;
      }
      const head = await this.#ask('HEAD', [200], (client) => client.tus('HEAD', path));
      const told = Number(head.headers.get('upload-offset'));
      if (told < offset) throw new Error(`an offset went back from ${offset} to ${told}`);
      offset = told;
    }
  }

  /** Goes on by Range where it breaks. */
  async #download(path: string, length: number): Promise<Buffer> {
    const pieces: Buffer[] = [];
    let received = 0;
    for (let tries = 1; received < length; tries += 1) {
      if (tries > mostTries) throw new Error('a download could not be ended');
      const client = this.#next();
      const headers = { authorization: `Bearer ${client.token ?? ''}`, range: `bytes=${received}-` };
      this.requests += 1;
      try {
        const answer = await fetch(`${client.url}${path}`, { headers });
        if (answer.status !== 206) throw new Error(String(answer.status));
        for await (const piece of answer.body ?? []) {
          pieces.push(Buffer.from(piece));
          received += piece.length;
        }
      } catch (error) {
        this.#meet(`download ${String(error).slice(0, 60)}`);
        await sleep(pauseMs);
      }
    }
    return Buffer.concat(pieces);
  }

  async #ask(what: string, wanted: readonly number[], call: (client: Client) => Promise<Answer>): Promise<Answer> {
    for (let tries = 1; ; tries += 1) {
      const answer = await this.#once(what, call);
      if (answer && wanted.includes(answer.status)) return answer;
      const lasting = answer !== null && ![202, 423, 503].includes(answer.status);
      if (lasting || tries === mostTries)
        throw new Error(
          `${what}: ${answer ? `${answer.status} ${answer.bytes.toString().slice(0, 300)}` : 'no answer'}`,
        );
      await sleep(pauseMs);
    }
  }

  async #once(what: string, call: (client: Client) => Promise<Answer>): Promise<Answer | null> {
    this.requests += 1;
    const answer = await call(this.#next()).catch(() => null);
    if (answer === null) this.#meet(`${what} no answer`);
    else if (answer.status >= 400 || answer.status === 202) this.#meet(`${what} ${answer.status}`);
    return answer;
  }

  #meet(what: string): void {
    this.met[what] = (this.met[what] ?? 0) + 1;
  }

  #next(): Client {
    this.#turn += 1;
    const client = this.#clients[this.#turn % this.#clients.length];
    if (!client) throw new Error('there is no gateway');
    return client;
  }
}
