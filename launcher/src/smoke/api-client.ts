import { setTimeout as sleep } from 'node:timers/promises';
const requestTimeoutMs = 60_000;
const pauseMs = 1_000;

/** An answer with its body read. */
interface Answer {
  status: number;
  headers: Headers;
  body: Buffer<ArrayBuffer>;
}

interface Sent {
  headers?: Record<string, string>;
  json?: unknown;
  bytes?: Buffer<ArrayBuffer>;
}

/**
 * Calls the HTTP interface at one address; an answer with another status than the wanted one is an Error that shows it.
 * What is unavailable is asked for again, until `patientUntil` (ms since the epoch): an installation may be seconds old.
 */
export class ApiClient {
  readonly #url: string;
  readonly #patientUntil: number;
  #token: string | null = null;

  constructor(url: string, patientUntil: number) {
    this.#url = url;
    this.#patientUntil = patientUntil;
  }

  async logIn(username: string, password: string): Promise<void> {
    const answer = await this.call(200, 'POST', '/api/auth/login', { json: { username, password } });
    this.#token = stringIn(answer, 'access_token');
  }

  async call(wanted: number, method: string, path: string, sent: Sent = {}): Promise<Answer> {
    for (;;) {
      const answer = await this.#send(method, path, sent);
      if (answer.status === wanted) return answer;
      if (answer.status !== 503 || Date.now() > this.#patientUntil) {
        const shown = answer.body.toString().slice(0, 500);
        throw new Error(`${method} ${path} was answered with ${answer.status} in place of ${wanted}: ${shown}`);
      }
      await sleep(pauseMs);
    }
  }

  /** As `call`, for an answer that is an object with this string in it. */
  async callFor(key: string, wanted: number, method: string, path: string, sent: Sent = {}): Promise<string> {
    return stringIn(await this.call(wanted, method, path, sent), key);
  }

  async #send(method: string, path: string, { headers, json, bytes }: Sent): Promise<Answer> {
    const body = json === undefined ? bytes : JSON.stringify(json);
    const response = await fetch(new URL(path, this.#url), {
      method,
      headers: {
        ...(this.#token === null ? {} : { authorization: `Bearer ${this.#token}` }),
        ...(json === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body }),
      // A redirect would hand the password or the token to whoever it names.
      redirect: 'manual',
      signal: AbortSignal.timeout(requestTimeoutMs),
    });
    return { status: response.status, headers: response.headers, body: await bodyOf(response) };
  }
}

async function bodyOf(response: Response): Promise<Buffer<ArrayBuffer>> {
  return Buffer.from(await response.arrayBuffer());
}

function stringIn(answer: Answer, key: string): string {
  const found: unknown = Object(JSON.parse(answer.body.toString()))[key];
  if (typeof found !== 'string') throw new Error(`an answer lacks ${key}`);
  return found;
}
