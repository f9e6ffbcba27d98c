import { isDeepStrictEqual } from 'node:util';
import { setTimeout as sleep } from 'node:timers/promises';
import { unavailable } from '@stowage/common/errors';
import type { Logger } from '@stowage/common/runtime/logger';
import { withinWait } from '@stowage/common/within-wait';
import type { ReferencedSecrets, SecretRef } from '../secrets/secret-ref.ts';
import { refusal } from '../stores/store-refusal.ts';
import type { SecretApi, SecretData } from './secret-api.ts';

/** After an error; a watch that ended by itself is taken up again after the shortest of these. In ms. */
export interface Pauses {
  first: number;
  most: number;
}

const usualPauses: Pauses = { first: 1_000, most: 30_000 };
/** How long a request waits for the first look at a Secret. */
const firstLookMs = 3_000;
const longestValue = 4_096;

interface Seen {
  data: SecretData | null;
  generation: number;
}

/** The Secrets that may be referred to, as they are now: looked at once, and then watched. */
export class WatchedSecrets implements ReferencedSecrets {
  readonly #allowed: ReadonlySet<string>;
  readonly #seen = new Map<string, Seen>();
  readonly #first = new Map<string, PromiseWithResolvers<true>>();
  readonly #stopping = new AbortController();
  readonly #pauses: Pauses;
  readonly #logger: Logger;
  #running: Promise<void>[] = [];
  #onChange: (name: string) => void = () => undefined;
  /** False where the start found no cluster. */
  #hasCluster = true;

  constructor(allowed: readonly string[], logger: Logger, pauses: Pauses = usualPauses) {
    this.#allowed = new Set(allowed);
    for (const name of this.#allowed) this.#first.set(name, Promise.withResolvers());
    this.#logger = logger;
    this.#pauses = pauses;
  }

  /**
   * From now on all are watched, once; null says that there is no cluster. `onChange` hears of each one whose values
   * changed.
   */
  start(api: SecretApi | null, onChange: (name: string) => void): void {
    this.#hasCluster = api !== null;
    this.#onChange = onChange;
    if (api && this.#running.length === 0) this.#running = [...this.#allowed].map((name) => this.#follow(api, name));
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await Promise.all(this.#running);
  }

  refusalOf({ name }: SecretRef): string | null {
    if (!this.#hasCluster) return 'can not be a secret_ref: this Stowage does not run in a Kubernetes cluster';
    if (this.#allowed.has(name)) return null;
    return 'names a Kubernetes Secret that STOWAGE_SECRET_REFS does not allow: check secret_ref.name';
  }

  async valueOf(ref: SecretRef): Promise<{ value: string; generation: number }> {
    const { name, key } = ref;
    const refused = this.refusalOf(ref);
    if (refused !== null) throw refusal(`A secret of this backend ${refused}.`, 'the reference is not allowed');
    const first = this.#first.get(name);
    if (first && !this.#seen.has(name)) await withinWait(first.promise, firstLookMs);
    const seen = this.#seen.get(name);
    if (!seen) throw unavailable(`The Kubernetes Secret "${name}" could not be looked at yet.`);
    if (seen.data === null) throw refusal(`There is no Kubernetes Secret "${name}".`, 'no such Secret');
    const bytes = Object.hasOwn(seen.data, key) ? seen.data[key] : undefined;
    if (bytes === undefined) throw refusal(`The Kubernetes Secret "${name}" has no key "${key}".`, 'no such key');
    const value = textOf(bytes);
    if (value !== null) return { value, generation: seen.generation };
    throw refusal(`The key "${key}" of the Kubernetes Secret "${name}" holds no text of one line.`, 'no usable value');
  }

  generationOf(name: string): number {
    return this.#seen.get(name)?.generation ?? 0;
  }

  /** Looks anew after every end of a watch: so nothing is missed, whatever ended it. */
  async #follow(api: SecretApi, name: string): Promise<void> {
    const { signal } = this.#stopping;
    for (let pauseMs = this.#pauses.first; !signal.aborted;) {
      try {
        const { data, version } = await api.look(name, signal);
        this.#note(name, data);
        pauseMs = this.#pauses.first;
        await api.watch(name, version, (changed) => this.#note(name, changed), signal);
      } catch (error) {
        if (signal.aborted) return;
        this.#logger.warn({ secret: name, fault: faultOf(error) }, 'A Kubernetes Secret can not be watched just now.');
        pauseMs = Math.min(pauseMs * 2, this.#pauses.most);
      }
      await sleep(pauseMs, undefined, { signal }).catch(() => undefined);
    }
  }

  #note(name: string, data: SecretData | null): void {
    const before = this.#seen.get(name);
    if (before && isDeepStrictEqual(before.data, data)) return;
    this.#seen.set(name, { data, generation: (before?.generation ?? 0) + 1 });
    this.#first.get(name)?.resolve(true);
    this.#logger.info({ secret: name, is_there: data !== null }, 'A Kubernetes Secret was read.');
    this.#onChange(name);
  }
}

/** Files and editors end a text with a line feed, which is never part of a secret. Null for what can't be one. */
function textOf(base64: string): string | null {
  const bytes = Buffer.from(base64, 'base64');
  const text = bytes.toString('utf8').replace(/\r?\n$/, '');
  const isText = Buffer.from(text).equals(bytes.subarray(0, Buffer.byteLength(text))) && !/\p{Cc}/u.test(text);
  return isText && text !== '' && text.length <= longestValue ? text : null;
}

/** The first line alone, and nothing of what could not be parsed: more may hold a part of an answer. */
function faultOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown';
  const [line = ''] = error instanceof SyntaxError ? [] : error.message.split('\n');
  const code = 'code' in error ? error.code : 'statusCode' in error ? error.statusCode : undefined;
  const cause = error.cause instanceof Error && 'code' in error.cause ? error.cause.code : undefined;
  return [error.name, code ?? cause, line.slice(0, 200)].filter((part) => part !== undefined && part !== '').join(' ');
}
