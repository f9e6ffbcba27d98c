const requestTimeoutMs = 60_000;

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

/** Calls the HTTP interface at one address; an answer with another status than the wanted one is an Error that shows it. */
export class ApiClient {
  readonly #url: string;
  #token: string | null = null;

  constructor(url: string) {
    this.#url = url;
  }

  async logIn(username: string, password: string): Promise<void> {
    const answer = await this.call(200, 'POST', '/api/auth/login', { json: { username, password } });
    this.#token = stringIn(answer, 'access_token');
  }

  async call(wanted: number, method: string, path: string, { headers, json, bytes }: Sent = {}): Promise<Answer> {
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
    const answer = { status: response.status, headers: response.headers, body: await bodyOf(response) };
    if (answer.status === wanted) return answer;
    throw new Error(
      `${method} ${path} was answered with ${answer.status} in place of ${wanted}: ${answer.body.toString().slice(0, 500)}`,
    );
  }

  /** As `call`, for an answer that is an object with this string in it. */
  async callFor(key: string, wanted: number, method: string, path: string, sent: Sent = {}): Promise<string> {
    return stringIn(await this.call(wanted, method, path, sent), key);
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
