import { readFileSync } from 'node:fs';

/** One setting: the variable that holds it, what it means, and how its text becomes a value. */
export interface Setting<T> {
  variable: string;
  /** For the settings table of the README. */
  about: string;
  /** The default as text, for the same table; null where it must be set. */
  fallback: string | null;
  /** Throws an Error whose message completes "STOWAGE_X …". */
  parse(text: string): T;
  /** Whether `<variable>_FILE` may name a file that holds the value. */
  secret: boolean;
  /** The value where the variable is unset and `fallback` is null; undefined means that it is needed. */
  absent?: T;
}

export type Settings = Record<string, Setting<unknown>>;
export type Values<S extends Settings> = { readonly [K in keyof S]: S[K] extends Setting<infer T> ? T : never };

/** Every mistake in the environment, in one message. */
export class SettingsError extends Error {
  override readonly name = 'SettingsError';

  constructor(mistakes: readonly string[]) {
    super(`The settings are not right:\n${mistakes.map((mistake) => `  - ${mistake}`).join('\n')}`);
  }
}

export type Environment = Readonly<Record<string, string | undefined>>;

/** Several groups of settings, by name. */
export type SettingsGroups = Record<string, Settings>;
export type GroupValues<G extends SettingsGroups> = { readonly [K in keyof G]: Values<G[K]> };

/** Parses all groups at once. Throws SettingsError with all mistakes. Empty variables count as unset. */
export function readSettings<G extends SettingsGroups>(groups: G, environment: Environment): GroupValues<G> {
  const mistakes = new Set<string>();
  const values: Record<string, Record<string, unknown>> = {};
  for (const [group, settings] of Object.entries(groups)) {
    values[group] = {};
    for (const [name, setting] of Object.entries(settings)) {
      try {
        values[group][name] = readOne(setting, environment);
      } catch (error) {
        mistakes.add(`${setting.variable} ${error instanceof Error ? error.message : String(error)}`);
      }
    }
  }
  if (mistakes.size > 0) throw new SettingsError([...mistakes]);
  // Each key was filled by the parser that gives it its type.
  return values as GroupValues<G>;
}

function readOne<T>(setting: Setting<T>, environment: Environment): T {
  const text = rawValue(setting, environment) ?? setting.fallback;
  if (text !== null) return setting.parse(text);
  if (setting.absent === undefined) throw new Error('must be set');
  return setting.absent;
}

function rawValue(setting: Setting<unknown>, environment: Environment): string | null {
  const direct = environment[setting.variable];
  const file = setting.secret ? environment[`${setting.variable}_FILE`] : undefined;
  if (direct && file) throw new Error(`is set twice: as itself and as ${setting.variable}_FILE`);
  if (direct) return direct;
  if (!file) return null;
  try {
    return readFileSync(file, 'utf8').trim();
  } catch {
    throw new Error(`_FILE names ${file}, which can't be read`);
  }
}

type Options<T> = { fallback?: string; secret?: boolean; absent?: T };

/** A setting with a parser of its own. */
export function setting<T>(
  variable: string,
  about: string,
  parse: (text: string) => T,
  options: Options<NoInfer<T>> = {},
): Setting<T> {
  return {
    variable,
    about,
    parse,
    fallback: options.fallback ?? null,
    secret: options.secret ?? false,
    ...('absent' in options ? { absent: options.absent } : {}),
  };
}

export function text(text: string): string {
  return text;
}

/** A whole number within bounds, both included. */
export function integer(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d+$/.test(text) || value < min || value > max) {
      throw new Error(`must be a whole number from ${min} to ${max}, not "${text}"`);
    }
    return value;
  };
}

const durationUnits = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** A hundred years: times beyond what a date can hold would fail every request that adds them to one. */
const longestMs = 36_500 * durationUnits.d;
/** The longest that a timer of Node waits; one of more does not wait at all. */
const longestTimerMs = 24 * durationUnits.d;

/** Text such as `90s`, `24h` or `30d`, in ms. */
export const duration = durationWithin(0, longestMs, 'a time such as 90s, 24h or 30d');

/** A duration that is a limit: 0 would be none, or nothing at all. */
export const positiveDuration = durationWithin(1, longestMs, 'a time above 0, such as 90s, 24h or 30d');

/** A duration that a timer waits for; some have none to wait for. */
export const waitingTime = durationWithin(0, longestTimerMs, 'a time of 24d at most, such as 90s or 24h');

/** A duration after which a timer ends something. */
export const timeout = durationWithin(1, longestTimerMs, 'a time above 0 and of 24d at most, such as 90s or 24h');

function durationWithin(min: number, max: number, wanted: string): (text: string) => number {
  return (text) => {
    const match = /^(\d{1,9})(ms|s|m|h|d)$/.exec(text);
    const unit = Object.entries(durationUnits).find(([name]) => name === match?.[2]);
    const value = match && unit ? Number(match[1]) * unit[1] : Number.NaN;
    if (!(value >= min && value <= max)) throw new Error(`must be ${wanted}, not "${text}"`);
    return value;
  };
}

const byteUnits = { '': 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 } as const;

/** Text such as `512MiB` or `1TiB`, in bytes. */
export function byteSize(text: string): number {
  const match = /^(\d{1,15})(KiB|MiB|GiB|TiB)?$/.exec(text);
  const unit = Object.entries(byteUnits).find(([name]) => name === (match?.[2] ?? ''));
  const bytes = match && unit ? Number(match[1]) * unit[1] : Number.NaN;
  if (!Number.isSafeInteger(bytes)) throw new Error(`must be a size such as 512MiB or 1TiB, not "${text}"`);
  return bytes;
}

/** A size within bounds, both included. */
export function byteSizeWithin(min: number, max: number): (text: string) => number {
  return (text) => {
    const bytes = byteSize(text);
    if (bytes < min || bytes > max) throw new Error(`must be from ${min} to ${max} bytes, not "${text}"`);
    return bytes;
  };
}

/** One of a few words. */
export function oneOf<const T extends string>(...words: readonly T[]): (text: string) => T {
  return (text) => {
    const word = words.find((candidate) => candidate === text);
    if (word === undefined) throw new Error(`must be one of ${words.join(', ')}, not "${text}"`);
    return word;
  };
}

/** Words separated by commas; an item that `check` throws on is a mistake. */
export function list(check: (item: string) => string): (text: string) => string[] {
  return (text) =>
    text
      .split(',')
      .map((item) => item.trim())
      .filter((item) => item !== '')
      .map(check);
}

/** An absolute http or https address without path, query, user or wildcard. */
export function origin(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  const more = url && (url.pathname !== '/' || url.search || url.hash || url.username || url.password);
  if (!url || !/^https?:$/.test(url.protocol) || more || url.hostname.includes('*')) {
    // What stands before an @ may be a password.
    throw new Error(`must be an origin such as https://files.example.com, not "${text.replace(/^.*@/s, '…@')}"`);
  }
  return url.origin;
}
