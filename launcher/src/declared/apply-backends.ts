import { configFields } from '@stowage/common/backend-config';
import { isDeepStrictEqual } from 'node:util';
import { ApiRefusal } from './api-client.ts';
import type { ApiAnswer, ApiClient } from './api-client.ts';
import type { DeclaredBackend } from './declared-file.ts';

type Json = Readonly<Record<string, unknown>>;

/** What is said of each change that was made. */
export type Tell = (change: string) => void;

/**
 * Makes a backend as it is declared, or changes what differs. What is not declared of it is left alone. A secret that is
 * written out is sent where none is set: whether it is the one that is set, nobody can tell. Throws ApiRefusal.
 */
export async function applyBackend(api: ApiClient, declared: DeclaredBackend, tell: Tell): Promise<void> {
  const present = (await api.list('/api/backends')).find(({ name }) => name === declared.name);
  if (!present) return create(api, declared, tell);
  if (present['type'] !== declared.type) {
    throw new ApiRefusal(409, `it has the type ${String(present['type'])}, which can't change: declare another name`);
  }
  const path = `/api/backends/${String(present['id'])}`;
  const changes = changesOf(declared, present);
  if (Object.keys(changes).length > 0) {
    const { body } = await api.change('PATCH', path, { body: changes, ifMatch: `"${String(present['version'])}"` });
    tell(`changed: ${namesOf(changes)}; ${healthOf(body)}`);
  }
  if (declared.state !== null && declared.state !== present['state']) await setState(api, path, declared.state, tell);
}

async function create(api: ApiClient, declared: DeclaredBackend, tell: Tell): Promise<void> {
  const { name, type, config, isDefault, state } = declared;
  const body = { name, type, config, ...(isDefault ? { is_default: true } : {}) };
  const made = await api.change('POST', '/api/backends', { body });
  tell(`made, as ${String(made.body['id'])}${isDefault ? ', the default one' : ''}; ${healthOf(made.body)}`);
  if (state === 'disabled') await setState(api, `/api/backends/${String(made.body['id'])}`, state, tell);
}

async function setState(api: ApiClient, path: string, state: 'enabled' | 'disabled', tell: Tell): Promise<ApiAnswer> {
  const answer = await api.change('POST', `${path}/${state === 'enabled' ? 'enable' : 'disable'}`, { body: {} });
  tell(state);
  return answer;
}

/** The body of the PATCH that makes a backend what is declared; empty where it is that already. */
function changesOf({ type, config: wanted, isDefault }: DeclaredBackend, present: Json): Json {
  const fields = configFields[type];
  const shown = objectIn(present['config']);
  const refs = objectIn(present['secret_refs']);
  const set = Array.isArray(present['secret_fields']) ? present['secret_fields'] : [];
  const differs = ([key, value]: [string, unknown]): boolean => {
    if (!(Object.hasOwn(fields, key) && fields[key]?.secret)) {
      return !isDeepStrictEqual(shown[key] ?? null, value ?? null);
    }
    const ref = objectIn(value)['secret_ref'];
    if (ref !== undefined) return !isDeepStrictEqual(refs[key], ref);
    const isLeftOut = value === null || value === '';
    return !isLeftOut && (!set.includes(key) || Object.hasOwn(refs, key));
  };
  const config = Object.fromEntries(Object.entries(wanted).filter(differs));
  return {
    ...(Object.keys(config).length > 0 ? { config } : {}),
    ...(isDefault && present['is_default'] !== true ? { is_default: true } : {}),
  };
}

/** Names of what changes, never the values. */
function namesOf(changes: Json): string {
  return [...Object.keys(objectIn(changes['config'])), ...('is_default' in changes ? ['is_default'] : [])].join(', ');
}

function healthOf(backend: Json): string {
  const { status, detail } = objectIn(backend['health']);
  return `it is ${String(status)}${typeof detail === 'string' ? ` (${detail})` : ''}`;
}

function objectIn(value: unknown): Json {
  return typeof value === 'object' && value !== null ? { ...value } : {};
}
