import { createHash } from 'node:crypto';
import { Agent } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { sha256, uploadMetadata } from '../client.ts';
import type { Client } from '../client.ts';
import type { Random } from '../random.ts';
import { uniqueName } from '../system.ts';
import { bodyOf, send } from './http-call.ts';

/** A file that was acknowledged. */
export interface Kept {
  id: string;
  size: number;
  sha256: string;
}

/** What the clients met so far. */
export interface Met {
  requests: number;
  /** Uploads and downloads that came to their end. */
  uploads: number;
  downloads: number;
  /** How often an upload went on from the offset that HEAD told. */
  resumed: number;
  /** How often a download that broke off went on by Range. */
  continued: number;
  /** What a user would have seen fail. */
  failures: string[];
}

export interface LoadWish {
  /** Of these every second one uploads, and the others download and list by turns. */
  clients: number;
  /** Where the files go, and what is listed. */
  directoryId: string;
  random: Random;
}

const chunk = 512 * 1024;
const longest = 4 * 1024 * 1024;
const pauseMs = 150;
/** How long an upload or a download tries to go on; a common tus client tries as long. */
const patienceMs = 30_000;

/**
 * People who upload with resuming, download, and list, all the time until they are told to stop. They do what a browser and
 * a tus client do and nothing more: a PATCH that fails is followed by HEAD and the rest, a download that breaks off by a
 * Range, and whatever else is not answered as it should is a failure.
 */
export class Load {
  readonly kept: Kept[] = [];
  readonly met: Met = { requests: 0, uploads: 0, downloads: 0, resumed: 0, continued: 0, failures: [] };
  readonly #client: Client;
  readonly #wish: LoadWish;
  readonly #agent: Agent;
  readonly #began = performance.now();
  #stopped = false;
  #running: Promise<unknown> = Promise.resolve();

  private constructor(client: Client, wish: LoadWish) {
    this.#client = client;
    this.#wish = wish;
    this.#agent = new Agent({ keepAlive: true, maxSockets: wish.clients * 2 });
  }

  /** Begins, with one file there already. */
  static async start(client: Client, wish: LoadWish): Promise<Load> {
    const load = new Load(client, wish);
    await load.#upload(wish.random.fork());
    if (load.kept.length === 0) throw new Error(`nothing can be uploaded: ${load.met.failures.join('\n')}`);
    const turns = [load.#upload, load.#download, load.#upload, load.#list];
    load.#running = Promise.all(
      Array.from({ length: wish.clients }, (_, index) => {
        const turn = turns[index % turns.length] ?? load.#list;
        return load.#repeat(turn.bind(load), wish.random.fork());
      }),
    );
    return load;
  }

  /** Lets everyone finish what is under way. */
  async stop(): Promise<Met> {
    this.#stopped = true;
    await this.#running;
    this.#agent.destroy();
    return this.met;
  }

  /** Reads every acknowledged file once more; gives those that are not as they were. */
  async damaged(): Promise<string[]> {
    const bad: string[] = [];
    for (const file of this.kept) {
      const answer = await this.#client.get(`/api/files/${file.id}/download`);
      if (answer.status !== 200 || sha256(answer.bytes) !== file.sha256) bad.push(`${file.id}: ${answer.status}`);
    }
    return bad;
  }

  async #repeat(turn: (random: Random) => Promise<void>, random: Random): Promise<void> {
    while (!this.#stopped) {
      await turn(random).catch((error: unknown) => this.#fail('a client', String(error)));
      await sleep(pauseMs * (0.5 + random.next()));
    }
  }

  async #upload(random: Random): Promise<void> {
    const bytes = random.bytes(random.integer(1, longest));
    const name = uniqueName('load');
    const metadata = uploadMetadata({ filename: name, directory_id: this.#wish.directoryId });
    const made = await this.#ask('POST', '/files', {
      ...{ 'tus-resumable': '1.0.0', 'upload-length': String(bytes.length), 'upload-metadata': metadata },
    });
    if (made?.status !== 201) return;
    const path = made.location;
    if (!(await this.#sendAll(path, bytes))) return;
    const id = path.slice(path.lastIndexOf('/') + 1);
    const finalize = `/api/uploads/${id}/finalize`;
    let file = await this.#ask('POST', finalize, { 'content-type': 'application/json' }, Buffer.from('{}'));
    while (file?.status === 202) {
      await sleep(1_000);
      file = await this.#ask('POST', finalize, { 'content-type': 'application/json' }, Buffer.from('{}'));
    }
    if (file?.status !== 201 && file?.status !== 200) return;
    this.met.uploads += 1;
    this.kept.push({ id: JSON.parse(file.body.toString()).id, size: bytes.length, sha256: sha256(bytes) });
  }

  /** As a tus client: what fails is asked for with HEAD, and goes on from there. */
  async #sendAll(path: string, bytes: Buffer): Promise<boolean> {
    let offset = 0;
    let why = '';
    let deadline = performance.now() + patienceMs;
    while (offset < bytes.length) {
      if (performance.now() > deadline) {
        this.#fail(`PATCH ${path}`, `could not go on from ${offset}: ${why}`);
        return false;
      }
      const body = bytes.subarray(offset, offset + chunk);
      const sent = await this.#try('PATCH', path, { ...patchHeaders, 'upload-offset': String(offset) }, body);
      if (sent.status === 204) {
        offset += body.length;
        deadline = performance.now() + patienceMs;
        continue;
      }
      why = sent.why;
      await sleep(500);
      const head = await this.#try('HEAD', path, { 'tus-resumable': '1.0.0' });
      if (head.status === 200) offset = Number(head.offset);
      else why = head.why;
      this.met.resumed += 1;
    }
    return true;
  }

  async #download(random: Random): Promise<void> {
    const file = this.kept[random.integer(0, this.kept.length - 1)];
    if (!file) return;
    const hash = createHash('sha256');
    const deadline = performance.now() + patienceMs;
    let at = 0;
    while (at < file.size) {
      this.met.requests += 1;
      const range: Record<string, string> = at === 0 ? {} : { range: `bytes=${at}-` };
      const answer = await this.#send('GET', `/api/files/${file.id}/download`, range).catch(String);
      if (typeof answer === 'string') return this.#fail('a download', answer);
      if (answer.statusCode !== (at === 0 ? 200 : 206)) return this.#fail('a download', await told(answer));
      try {
        for await (const piece of answer) {
          hash.update(piece);
          at += piece.length;
          // Somebody's slow line, so that many downloads are under way when a pod ends.
          if (random.chance(0.1)) await sleep(20);
        }
      } catch {
        this.met.continued += 1;
        if (performance.now() > deadline) return this.#fail('a download', `it broke off too often, at ${at}`);
      }
    }
    if (hash.digest('hex') !== file.sha256) return this.#fail('a download', `${file.id} came with other bytes`);
    this.met.downloads += 1;
  }

  async #list(random: Random): Promise<void> {
    await this.#ask('GET', `/api/directories/${this.#wish.directoryId}/children?limit=50`, {});
    const file = this.kept[random.integer(0, this.kept.length - 1)];
    if (file) await this.#ask('GET', `/api/files/${file.id}`, {});
  }

  /** A request that must be answered well; null, and a failure, where it is not. */
  async #ask(method: string, path: string, headers: Record<string, string>, body?: Buffer): Promise<Told | null> {
    const answer = await this.#try(method, path, headers, body);
    if (answer.status >= 200 && answer.status < 300) return answer;
    this.#fail(`${method} ${path}`, answer.why);
    return null;
  }

  async #try(method: string, path: string, headers: Record<string, string>, body?: Buffer): Promise<Told> {
    this.met.requests += 1;
    try {
      const answer = await this.#send(method, path, headers, body);
      const bytes = await bodyOf(answer);
      return {
        status: answer.statusCode ?? 0,
        body: bytes,
        location: new URL(answer.headers.location ?? '/', this.#client.url).pathname,
        offset: String(answer.headers['upload-offset']),
        why: `${answer.statusCode} ${bytes.toString().slice(0, 300)}`,
      };
    } catch (error) {
      return { status: 0, body: Buffer.alloc(0), location: '', offset: '', why: String(error) };
    }
  }

  #send(method: string, path: string, headers: Record<string, string>, body?: Buffer): Promise<IncomingMessage> {
    const all = { ...headers, authorization: `Bearer ${this.#client.token ?? ''}` };
    return send(this.#agent, { method, url: `${this.#client.url}${path}`, headers: all, body });
  }

  #fail(what: string, why: string): void {
    const seconds = ((performance.now() - this.#began) / 1000).toFixed(1);
    this.met.failures.push(`after ${seconds} s: ${what}: ${why}`);
  }
}

/** An answer with its body read; the status is 0 where there was none. */
interface Told {
  status: number;
  body: Buffer;
  location: string;
  offset: string;
  why: string;
}

const patchHeaders = { 'tus-resumable': '1.0.0', 'content-type': 'application/offset+octet-stream' };

async function told(answer: IncomingMessage): Promise<string> {
  const body = await bodyOf(answer).catch(() => Buffer.from('a body that broke off'));
  return `${answer.statusCode} ${body.toString().slice(0, 300)}`;
}
