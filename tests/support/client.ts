import { createHash } from 'node:crypto';
import { adminPassword } from './system.ts';

/** What a test reads from an answer is checked by its expectations, not by types. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
type Anything = any;

/** A JSON object as it came. */
export type Json = Record<string, Anything>;

/** An answer with its body read. */
export interface Answer {
  status: number;
  headers: Headers;
  json: Json;
  bytes: Buffer;
}

export interface CallOptions {
  body?: unknown;
  headers?: Record<string, string>;
  /** Sent as it is, instead of a JSON body. */
  raw?: NonNullable<RequestInit['body']>;
}

/** A client of the HTTP interface with a token, or without one. */
export class Client {
  readonly url: string;
  readonly token: string | null;

  constructor(url: string, token: string | null = null) {
    this.url = url;
    this.token = token;
  }

  get(path: string, headers: Record<string, string> = {}): Promise<Answer> {
    return this.call('GET', path, { headers });
  }

  post(path: string, body: unknown = {}, headers: Record<string, string> = {}): Promise<Answer> {
    return this.call('POST', path, { body, headers });
  }

  delete(path: string, headers: Record<string, string> = {}): Promise<Answer> {
    return this.call('DELETE', path, { headers });
  }

  async call(method: string, path: string, options: CallOptions = {}): Promise<Answer> {
    const headers = new Headers(options.headers);
    if (this.token) headers.set('authorization', `Bearer ${this.token}`);
    const init: RequestInit = { method, headers, redirect: 'manual' };
    if (options.raw !== undefined) init.body = options.raw;
    else if (options.body !== undefined) {
      headers.set('content-type', 'application/json');
      init.body = JSON.stringify(options.body);
    }
    const answer = await fetch(`${this.url}${path}`, init);
    const bytes = Buffer.from(await answer.arrayBuffer());
    const isJson = answer.headers.get('content-type')?.includes('json') ?? false;
    const json: Json = isJson && bytes.length > 0 ? JSON.parse(bytes.toString()) : {};
    return { status: answer.status, headers: answer.headers, json, bytes };
  }

  /** A tus request: `Tus-Resumable` is set, the body is bytes. */
  tus(method: string, path: string, headers: Record<string, string> = {}, body?: Buffer): Promise<Answer> {
    const type: Record<string, string> = body ? { 'content-type': 'application/offset+octet-stream' } : {};
    const all = { 'tus-resumable': '1.0.0', ...type, ...headers };
    return this.call(method, path, body ? { headers: all, raw: new Uint8Array(body) } : { headers: all });
  }

  /** Makes a directory; gives its JSON. */
  async makeDirectory(name: string, parentId = 'root'): Promise<Json> {
    return expectStatus(await this.post('/api/directories', { parent_id: parentId, name }), 201).json;
  }

  /** Uploads in one request and finalizes; gives the file's JSON. */
  async putFile(
    name: string,
    content: Buffer | string,
    options: { directory?: string; type?: string; fileClass?: string } = {},
  ): Promise<Json> {
    const bytes = Buffer.from(content);
    const metadata = uploadMetadata({
      filename: name,
      ...(options.directory ? { directory_id: options.directory } : {}),
      ...(options.type ? { filetype: options.type } : {}),
      ...(options.fileClass ? { file_class: options.fileClass } : {}),
    });
    const headers = { 'upload-length': String(bytes.length), 'upload-metadata': metadata };
    const made = expectStatus(await this.tus('POST', '/files', headers, bytes.length > 0 ? bytes : undefined), 201);
    const id = uploadIdOf(made);
    return expectStatus(await this.post(`/api/uploads/${id}/finalize`), 201).json;
  }
}

/** Logs in. */
export async function logIn(url: string, username = 'admin', password = adminPassword): Promise<Client> {
  const answer = expectStatus(await new Client(url).post('/api/auth/login', { username, password }), 200);
  return new Client(url, answer.json['access_token']);
}

/** Makes a user with a role and logs in as that user. */
export async function logInAs(admin: Client, role: 'viewer' | 'editor' | 'admin', username: string): Promise<Client> {
  const password = `password of ${username}`;
  expectStatus(await admin.post('/api/users', { username, password, role }), 201);
  return logIn(admin.url, username, password);
}

/** Throws, with the whole answer, where the status is another one. */
export function expectStatus(answer: Answer, status: number): Answer {
  if (answer.status === status) return answer;
  throw new Error(`expected ${status}, got ${answer.status}: ${answer.bytes.toString().slice(0, 2000)}`);
}

export function uploadMetadata(pairs: Record<string, string>): string {
  return Object.entries(pairs)
    .map(([key, value]) => `${key} ${Buffer.from(value).toString('base64')}`)
    .join(',');
}

/** The id at the end of a Location. */
export function uploadIdOf(answer: Answer): string {
  const location = answer.headers.get('location') ?? '';
  return location.slice(location.lastIndexOf('/') + 1);
}

export function sha256(bytes: Buffer | string): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** Waits until `look` gives something but null or false; throws after `limitMs`. */
export async function until<T>(look: () => Promise<T | null | false>, limitMs = 20_000): Promise<T> {
  const deadline = Date.now() + limitMs;
  for (;;) {
    const seen = await look();
    if (seen !== null && seen !== false) return seen;
    if (Date.now() > deadline) throw new Error('what was waited for did not come');
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

/** Waits until the whole of a system is ready; what breaks off meanwhile counts as not ready. */
export async function untilReady(client: Client, limitMs?: number): Promise<void> {
  await until(async () => (await client.get('/api/system/ready').catch(() => null))?.status === 200, limitMs);
}
