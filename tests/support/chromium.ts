import { spawn, spawnSync } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Json } from './client.ts';

/** Whether a browser is installed. */
export const hasChromium = spawnSync('chromium', ['--version']).status === 0;

const startLimitMs = 30_000;

/** A headless Chromium with nothing of its own to say: all that it sends goes to the proxy, loopback too. */
export class Chromium {
  readonly #process: ChildProcess;
  readonly #profile: string;
  readonly #socket: WebSocket;
  readonly #calls = new Map<number, { resolve: (result: Json) => void; reject: (error: Error) => void }>();
  readonly #listeners = new Set<(session: string, event: string, detail: Json) => void>();
  #lastId = 0;

  private constructor(child: ChildProcess, profile: string, socket: WebSocket) {
    this.#process = child;
    this.#profile = profile;
    this.#socket = socket;
    socket.addEventListener('message', ({ data }) => this.#take(JSON.parse(String(data))));
  }

  static async start(proxyUrl: string): Promise<Chromium> {
    const profile = await mkdtemp(join(tmpdir(), 'stowage-chromium-'));
    const child = spawn('chromium', switches(proxyUrl, profile), {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { PATH: process.env['PATH'], HOME: profile },
    });
    const url = await debuggingUrl(child);
    const socket = new WebSocket(url);
    await new Promise<void>((resolve, reject) => {
      socket.addEventListener('open', () => resolve());
      socket.addEventListener('error', () => reject(new Error('the browser can not be spoken to')));
    });
    const browser = new Chromium(child, profile, socket);
    await browser.send('Browser.setDownloadBehavior', { behavior: 'deny' });
    return browser;
  }

  /** A new tab. */
  async open(): Promise<Page> {
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true });
    await this.send('Page.enable', {}, sessionId);
    return new Page(this, sessionId, targetId);
  }

  /** One command of the DevTools protocol. */
  send(method: string, params: Json = {}, sessionId?: string): Promise<Json> {
    this.#lastId += 1;
    const id = this.#lastId;
    return new Promise((resolve, reject) => {
      this.#calls.set(id, { resolve, reject });
      this.#socket.send(JSON.stringify({ id, method, params, ...(sessionId ? { sessionId } : {}) }));
    });
  }

  /** Resolves with the next event of that name in a tab. */
  next(sessionId: string, name: string, limitMs: number): Promise<Json> {
    return new Promise((resolve, reject) => {
      const listener = (session: string, event: string, detail: Json): void => {
        if (session !== sessionId || event !== name) return;
        settle();
        resolve(detail);
      };
      const timer = setTimeout(() => {
        settle();
        reject(new Error(`no ${name} came in time`));
      }, limitMs);
      const settle = (): void => {
        clearTimeout(timer);
        this.#listeners.delete(listener);
      };
      this.#listeners.add(listener);
    });
  }

  async close(): Promise<void> {
    const exited = once(this.#process, 'exit');
    // The browser ends all its processes itself; killed, it might leave some.
    await this.send('Browser.close').catch(() => undefined);
    await exited;
    await rm(this.#profile, { recursive: true, force: true, maxRetries: 5 });
  }

  #take({ id, result, error, method, params, sessionId }: Json): void {
    if (id === undefined) {
      for (const listener of this.#listeners) listener(sessionId, method, params);
      return;
    }
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    if (error) call?.reject(new Error(error.message));
    else call?.resolve(result);
  }
}

/** A tab. */
export class Page {
  readonly #browser: Chromium;
  readonly #session: string;
  readonly #target: string;

  constructor(browser: Chromium, session: string, target: string) {
    this.#browser = browser;
    this.#session = session;
    this.#target = target;
  }

  /** Goes to an address and waits until it is loaded with all frames; false where it was no page, but a download. */
  async goTo(url: string, limitMs = 30_000): Promise<boolean> {
    const loaded = this.#browser.next(this.#session, 'Page.loadEventFired', limitMs);
    // What is never awaited must not count as an unhandled error.
    loaded.catch(() => undefined);
    const { errorText } = await this.#browser.send('Page.navigate', { url }, this.#session);
    if (errorText) return false;
    await loaded;
    return true;
  }

  /** The value of an expression in the page. */
  async evaluate(expression: string): Promise<unknown> {
    const { result } = await this.#browser.send(
      'Runtime.evaluate',
      { expression, awaitPromise: true, returnByValue: true },
      this.#session,
    );
    return result.value;
  }

  async close(): Promise<void> {
    await this.#browser.send('Target.closeTarget', { targetId: this.#target });
  }
}

function switches(proxyUrl: string, profile: string): string[] {
  return [
    '--headless=new',
    '--remote-debugging-port=0',
    `--user-data-dir=${profile}`,
    `--proxy-server=${proxyUrl}`,
    // By default what is on loopback goes past a proxy.
    '--proxy-bypass-list=<-loopback>',
    // Root has no sandbox of Chromium's own; what it opens here is ours.
    '--no-sandbox',
    '--disable-dev-shm-usage',
    '--disable-gpu',
    '--no-first-run',
    '--no-default-browser-check',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-default-apps',
    '--disable-sync',
    '--disable-domain-reliability',
    '--disable-client-side-phishing-detection',
    '--disable-features=OptimizationHints,MediaRouter,Translate,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable',
    '--disable-popup-blocking',
    '--autoplay-policy=no-user-gesture-required',
    '--metrics-recording-only',
    '--mute-audio',
    'about:blank',
  ];
}

async function debuggingUrl(child: ChildProcess): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let printed = '';
  child.stderr?.on('data', (piece: Buffer) => {
    printed += piece.toString();
    const url = /DevTools listening on (ws:\S+)/.exec(printed)?.[1];
    if (url) resolve(url);
  });
  child.once('error', reject);
  child.once('exit', () => reject(new Error(`the browser did not start:\n${printed}`)));
  const timer = setTimeout(() => reject(new Error(`the browser was not ready in time:\n${printed}`)), startLimitMs);
  return promise.finally(() => clearTimeout(timer));
}
