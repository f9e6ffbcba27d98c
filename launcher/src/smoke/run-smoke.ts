import { createHash, randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { ApiClient } from './api-client.ts';

const contentBytes = 3 * 2 ** 20;
/** Where the first PATCH ends; the second goes on from there. */
const cut = 2 ** 20 + 12_345;
const pauseMs = 1000;

/** Whom the smoke test logs in as, and where. */
export interface SmokeTarget {
  url: string;
  username: string;
  password: string;
  /**
   * How long the address may refuse connections, and answers be 503, in ms: a name or a network policy may be newer than
   * this pod, and an installation that is seconds old has no policy yet.
   */
  patienceMs: number;
}

/**
 * Does what a person would, from the log-in to the removal for good, and says each step to `say`. It leaves nothing
 * behind. Throws where anything is not as it has to be.
 */
export async function runSmoke(target: SmokeTarget, say: (line: string) => void): Promise<void> {
  const api = new ApiClient(target.url, Date.now() + target.patienceMs);
  await logIn(api, target);
  say(`logged in at ${target.url} as ${target.username}`);
  const directory = await api.callFor('id', 201, 'POST', '/api/directories', {
    json: { name: 'stowage smoke test', on_conflict: 'rename' },
  });
  try {
    await moveContent(api, directory, say);
  } finally {
    await api.call(200, 'DELETE', `/api/directories/${directory}`);
    await api.call(204, 'DELETE', `/api/directories/${directory}?permanent=true`);
  }
  say('removed all of it for good');
  await api.call(204, 'POST', '/api/auth/logout');
}

async function logIn(api: ApiClient, { username, password, patienceMs }: SmokeTarget): Promise<void> {
  const deadline = Date.now() + patienceMs;
  for (;;) {
    try {
      return await api.logIn(username, password);
    } catch (error) {
      // fetch throws a TypeError where there was no answer at all.
      if (!(error instanceof TypeError) || Date.now() > deadline) throw causeOf(error);
      await sleep(pauseMs);
    }
  }
}

async function moveContent(api: ApiClient, directory: string, say: (line: string) => void): Promise<void> {
  const content = Buffer.from(randomBytes(contentBytes));
  const upload = await sendContent(api, directory, content);
  say(`uploaded ${contentBytes} bytes in two requests`);
  const file = await api.callFor('id', 201, 'POST', `/api/uploads/${upload}/finalize`);
  say(`finalized them as file ${file}`);
  const whole = await api.call(200, 'GET', `/api/files/${file}/download`);
  if (sha256(whole.body) !== sha256(content)) throw new Error('what was downloaded is not what was uploaded');
  const range = { range: `bytes=${cut}-${cut + 99}` };
  const part = await api.call(206, 'GET', `/api/files/${file}/download`, { headers: range });
  if (!part.body.equals(content.subarray(cut, cut + 100))) throw new Error('a range of it is not that range');
  say('downloaded the same bytes, whole and by range');
}

/** Gives the id of the upload. */
async function sendContent(api: ApiClient, directory: string, content: Buffer<ArrayBuffer>): Promise<string> {
  const tus = { 'tus-resumable': '1.0.0' };
  const metadata = `filename ${encode('smoke.bin')},directory_id ${encode(directory)}`;
  const made = await api.call(201, 'POST', '/files', {
    headers: { ...tus, 'upload-length': String(content.length), 'upload-metadata': metadata },
  });
  const id = made.headers.get('location')?.split('/').at(-1) ?? '';
  for (const [from, to] of [
    [0, cut],
    [cut, content.length],
  ]) {
    const headers = { ...tus, 'upload-offset': String(from), 'content-type': 'application/offset+octet-stream' };
    // Location may name an address that is not known where this runs: the path at the given address is the same.
    await api.call(204, 'PATCH', `/files/${id}`, { headers, bytes: content.subarray(from, to) });
  }
  return id;
}

function encode(text: string): string {
  return Buffer.from(text).toString('base64');
}

function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** fetch says only that it failed; its cause says why. */
function causeOf(error: unknown): unknown {
  return error instanceof TypeError && error.cause instanceof Error ? error.cause : error;
}
