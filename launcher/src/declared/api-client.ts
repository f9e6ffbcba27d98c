import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

type Json = Readonly<Record<string, unknown>>;

/** An answer of the API that is no refusal. */
export interface ApiAnswer {
  body: Json;
  etag: string | null;
}

export interface ApiRequest {
  body?: unknown;
  /** The ETag of what is changed. */
  ifMatch?: string | null;
}

/** An answer that says no: the message is all that a person needs to know, and holds nothing that was sent. */
export class ApiRefusal extends Error {
  override readonly name = 'ApiRefusal';
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** The API did not answer before the deadline. */
export class ApiUnreachable extends Error {
  override readonly name = 'ApiUnreachable';
}

const requestMs = 60_000;
const pauseMs = 1_000;
const longestPauseMs = 30_000;
/** For what asks again later to be told from what does not: an overloaded gateway, a limit, a database that is away. */
const passing = new Set([429, 502, 503, 504]);

/** One session at the API of a Stowage. What it can't answer just now is asked again until the deadline. */
export class ApiClient {
  readonly #url: string;
  /** Of the clock that nobody sets, in ms. */
  readonly #deadline: number;
  #token: string | null = null;

  constructor(url: string, limitMs: number) {
    this.#url = url;
    this.#deadline = performance.now() + limitMs;
  }

  /** Waits until the whole is ready as clients see it. Throws ApiUnreachable. */
  async untilReady(): Promise<void> {
    await this.#send('GET', '/api/system/ready', {});
  }

  /** Throws ApiRefusal for a wrong user name or password. */
  async logIn(username: string, password: string): Promise<void> {
    const { body } = await this.#send('POST', '/api/auth/login', { body: { username, password } });
    if (typeof body['access_token'] !== 'string') throw new ApiRefusal(200, 'The login gave no token.');
    this.#token = body['access_token'];
  }

  /** Ends the session. Says nothing of failing: a session ends by itself. */
  async logOut(): Promise<void> {
    if (this.#token === null) return;
    await this.#try('POST', '/api/auth/logout', this.#headers()).catch(() => undefined);
    this.#token = null;
  }

  get(path: string): Promise<ApiAnswer> {
    return this.#send('GET', path, {});
  }

  /** A change, which is made once however often it has to be sent. Throws ApiRefusal, ApiUnreachable. */
  change(method: 'POST' | 'PATCH' | 'PUT', path: string, request: ApiRequest): Promise<ApiAnswer> {
    return this.#send(method, path, request, { 'idempotency-key': randomUUID() });
  }

  /** All items of a list. */
  async list(path: string): Promise<Json[]> {
    const items: Json[] = [];
    for (let cursor: unknown = ''; typeof cursor === 'string';) {
      const more: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
      const { body } = await this.get(`${path}?limit=1000${more}`);
      items.push(...objectsIn(body['items']));
      cursor = body['next_cursor'];
    }
    return items;
  }

  async #send(
    method: string,
    path: string,
    request: ApiRequest,
    more: Record<string, string> = {},
  ): Promise<ApiAnswer> {
    const headers = { ...this.#headers(), ...more };
    if (request.body !== undefined) headers['content-type'] = 'application/json';
    if (typeof request.ifMatch === 'string') headers['if-match'] = request.ifMatch;
    for (;;) {
      const tried = await this.#try(method, path, headers, request.body);
      if (tried.again === null) return tried.answer;
      const waitMs = Math.min(tried.again.waitMs, longestPauseMs);
      if (performance.now() + waitMs > this.#deadline)
        throw new ApiUnreachable(`${method} ${path}: ${tried.again.why}`);
      await sleep(waitMs);
    }
  }

  async #try(
    method: string,
    path: string,
    headers: Record<string, string>,
    body?: unknown,
  ): Promise<{ answer: ApiAnswer; again: null } | { again: { waitMs: number; why: string } }> {
    let answer: Response;
    let text: string;
    try {
      answer = await fetch(`${this.#url}${path}`, {
        method,
        headers,
        redirect: 'manual',
        signal: AbortSignal.timeout(requestMs),
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      text = await answer.text();
    } catch (error) {
      return { again: { waitMs: pauseMs, why: reasonOf(error) } };
    }
    const json = parseJson(text);
    if (answer.ok) return { answer: { body: json, etag: answer.headers.get('etag') }, again: null };
    const why = tellProblem(answer.status, json);
    if (!passing.has(answer.status)) throw new ApiRefusal(answer.status, why);
    const seconds = Number(answer.headers.get('retry-after') ?? '1');
    return { again: { waitMs: seconds > 0 ? seconds * 1_000 : pauseMs, why } };
  }

  #headers(): Record<string, string> {
    return this.#token === null ? {} : { authorization: `Bearer ${this.#token}` };
  }
}

const commonMembers = new Set(['type', 'title', 'status', 'code', 'detail', 'errors', 'request_id']);

/** A problem in one line: its detail, where the mistakes are, and what else it says. */
function tellProblem(status: number, problem: Json): string {
  const { code, detail } = problem;
  const parts = [`${status} ${typeof code === 'string' ? code : ''}`.trim()];
  if (typeof detail === 'string') parts.push(detail);
  for (const { pointer, detail: fault } of objectsIn(problem['errors']))
    parts.push(`${String(pointer)} ${String(fault)}`);
  for (const [name, value] of Object.entries(problem)) {
    if (!commonMembers.has(name)) parts.push(`${name}: ${JSON.stringify(value)}`);
  }
  if (typeof problem['request_id'] === 'string') parts.push(`request ${problem['request_id']}`);
  return parts.join('; ');
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? error.cause.message : error.message;
}

function parseJson(text: string): Json {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? { ...value } : {};
  } catch {
    return {};
  }
}

/** The objects of a list in an answer. */
export function objectsIn(value: unknown): Json[] {
  if (!Array.isArray(value)) return [];
  return value.filter((item: unknown): item is Json => typeof item === 'object' && item !== null);
}
