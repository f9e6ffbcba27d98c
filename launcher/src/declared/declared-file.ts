import { backendTypes } from '@stowage/common/backend-config';
import type { BackendType } from '@stowage/common/backend-config';
import { parseDocument } from 'yaml';

/** A backend as a file declares it. */
export interface DeclaredBackend {
  name: string;
  type: BackendType;
  /** As the API takes it; judged there. */
  config: Readonly<Record<string, unknown>>;
  /** Null is as it is. */
  state: 'enabled' | 'disabled' | null;
  isDefault: boolean;
}

/** A placement policy as a file declares it. */
export interface DeclaredPolicy {
  fileClass: string;
  /** Names of backends, in order of preference. */
  backends: readonly string[];
  replicas: number;
  syncReplicas: number;
}

export interface Declared {
  backends: readonly DeclaredBackend[];
  policies: readonly DeclaredPolicy[];
}

/** Every mistake in a declared file, in one message. Quotes no value: it may be a secret. */
export class DeclaredFileError extends Error {
  override readonly name = 'DeclaredFileError';

  constructor(mistakes: readonly string[]) {
    super(`The declared file is not right:\n${mistakes.map((mistake) => `  - ${mistake}`).join('\n')}`);
  }
}

type Fields = Readonly<Record<string, unknown>>;

/** Parses YAML, of which JSON is a part. An empty file declares nothing. Throws DeclaredFileError with all mistakes. */
export function parseDeclared(text: string): Declared {
  const document = parseDocument(text, { uniqueKeys: true, prettyErrors: false });
  // What is only warned of would be read as something else than it says, as a value that begins with an exclamation mark.
  const faults = [...document.errors, ...document.warnings];
  if (faults.length > 0) {
    throw new DeclaredFileError(faults.map(({ code, pos }) => `is no YAML at character ${pos[0]}: ${code}`));
  }
  const mistakes: string[] = [];
  const root = new Reader('', fieldsOf(valueOf(document) ?? {}), mistakes);
  const declared = {
    backends: root.items('backends').map(backendOf),
    policies: root.items('policies').map(policyOf),
  };
  root.end();
  requireDistinct(
    'backends',
    'name',
    declared.backends.map(({ name }) => name),
    mistakes,
  );
  requireDistinct(
    'policies',
    'file_class',
    declared.policies.map(({ fileClass }) => fileClass),
    mistakes,
  );
  if (declared.backends.filter(({ isDefault }) => isDefault).length > 1) {
    mistakes.push('backends: only one can be the default one');
  }
  if (mistakes.length > 0) throw new DeclaredFileError(mistakes);
  return declared;
}

/** Few aliases, so that a small file can't become a huge one. The message of one that stands for nothing would quote it. */
function valueOf(document: ReturnType<typeof parseDocument>): unknown {
  try {
    return document.toJS({ maxAliasCount: 100 });
  } catch {
    throw new DeclaredFileError([
      'has an alias (*…) that stands for nothing, or too many: put values that begin with * in quotes',
    ]);
  }
}

function backendOf(reader: Reader): DeclaredBackend {
  const backend: DeclaredBackend = {
    name: reader.text('name'),
    type: reader.word('type', backendTypes) ?? 'local_directory',
    config: reader.object('config'),
    state: reader.has('state') ? reader.word('state', ['enabled', 'disabled']) : null,
    isDefault: reader.has('default') ? reader.truth('default') : false,
  };
  reader.end();
  return backend;
}

function policyOf(reader: Reader): DeclaredPolicy {
  const policy: DeclaredPolicy = {
    fileClass: reader.text('file_class'),
    backends: reader.texts('backends'),
    replicas: reader.count('replicas'),
    syncReplicas: reader.has('sync_replicas') ? reader.count('sync_replicas') : 1,
  };
  reader.end();
  return policy;
}

function requireDistinct(section: string, field: string, values: readonly string[], mistakes: string[]): void {
  for (const [index, value] of values.entries()) {
    if (value !== '' && values.indexOf(value) < index) {
      mistakes.push(`${section}[${index}].${field}: is declared twice`);
    }
  }
}

function fieldsOf(value: unknown): Fields | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : null;
}

/** Takes the fields of one object, noting what is wrong with them; `end` notes those that nobody took. */
class Reader {
  readonly #at: string;
  readonly #fields: Fields;
  readonly #mistakes: string[];
  readonly #taken = new Set<string>();

  constructor(at: string, fields: Fields | null, mistakes: string[]) {
    this.#at = at;
    this.#fields = fields ?? {};
    this.#mistakes = mistakes;
    if (fields === null) this.#mistakes.push(`${at || 'the file'}: must be an object`);
  }

  has(name: string): boolean {
    return Object.hasOwn(this.#fields, name);
  }

  /** A list of objects; none where it is left out. */
  items(name: string): Reader[] {
    if (!this.has(name) || this.#fields[name] === null) {
      this.#taken.add(name);
      return [];
    }
    return this.#list(name).map((item, index) => {
      return new Reader(`${this.#path(name)}[${index}]`, fieldsOf(item), this.#mistakes);
    });
  }

  text(name: string): string {
    const value = this.#take(name);
    if (typeof value === 'string' && value !== '') return value;
    this.#note(name, 'must be a text');
    return '';
  }

  texts(name: string): string[] {
    return this.#list(name).flatMap((item, index) => {
      if (typeof item === 'string') return [item];
      this.#note(`${name}[${index}]`, 'must be a text');
      return [];
    });
  }

  word<const W extends string>(name: string, words: readonly W[]): W | null {
    const value = this.#take(name);
    const word = words.find((candidate) => candidate === value);
    if (word === undefined) this.#note(name, `must be one of ${words.join(', ')}`);
    return word ?? null;
  }

  truth(name: string): boolean {
    const value = this.#take(name);
    if (typeof value !== 'boolean') this.#note(name, 'must be true or false');
    return value === true;
  }

  count(name: string): number {
    const value = this.#take(name);
    if (typeof value === 'number' && Number.isSafeInteger(value) && value > 0) return value;
    this.#note(name, 'must be a whole number above 0');
    return 1;
  }

  object(name: string): Fields {
    const value = fieldsOf(this.#take(name));
    if (value === null) this.#note(name, 'must be an object');
    return value ?? {};
  }

  end(): void {
    for (const name of Object.keys(this.#fields)) {
      if (!this.#taken.has(name)) this.#note(name, 'is not known here');
    }
  }

  #list(name: string): unknown[] {
    const value = this.#take(name);
    if (Array.isArray(value)) return value;
    this.#note(name, 'must be a list');
    return [];
  }

  #take(name: string): unknown {
    this.#taken.add(name);
    return this.#fields[name];
  }

  #note(name: string, what: string): void {
    this.#mistakes.push(`${this.#path(name)}: ${what}`);
  }

  #path(name: string): string {
    return this.#at === '' ? name : `${this.#at}.${name}`;
  }
}
