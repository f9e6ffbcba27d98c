import type { JsonValue } from '@bufbuild/protobuf';
import path from 'node:path';
import type { FieldError } from './errors.ts';

export const backendTypes = ['local_directory', 's3', 'webdav'] as const;
export type BackendType = (typeof backendTypes)[number];

/** One key of a backend's configuration. */
export interface Field {
  /** Must be there when a backend is made. */
  needed: boolean;
  /** Sealed, and never shown. */
  secret: boolean;
  /** Where content lies depends on it. */
  location: boolean;
  /** Why a value can't be taken; null where it can. The value itself is never quoted. */
  fault(value: JsonValue): string | null;
}

const text = (max: number, pattern: RegExp, wanted: string) => {
  return (value: JsonValue): string | null => {
    if (typeof value !== 'string') return 'must be a string';
    return value.length > max || !pattern.test(value) ? wanted : null;
  };
};

const publicField = (fault: Field['fault'], flags: Partial<Field> = {}): Field => {
  return { needed: false, secret: false, location: false, ...flags, fault };
};

const needed = { needed: true };
const location = { location: true };

const secretField = (flags: Partial<Field> = {}): Field => {
  return { needed: false, secret: true, location: false, ...flags, fault: secretFault };
};

/** The keys of each type's configuration. */
export const configFields: Readonly<Record<BackendType, Readonly<Record<string, Field>>>> = {
  local_directory: {
    root_path: publicField(folderFault, { needed: true, location: true }),
  },
  s3: {
    endpoint: publicField((value) => (value === null ? null : originFault(value)), location),
    region: publicField(text(64, /^[a-z0-9-]+$/, 'must be a region such as eu-central-1'), needed),
    bucket: publicField(
      text(63, /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/, 'must be a bucket’s name: 3 to 63 of a-z, 0-9, . and -'),
      { needed: true, location: true },
    ),
    prefix: publicField(prefixFault, location),
    force_path_style: publicField((value) => (typeof value === 'boolean' ? null : 'must be true or false')),
    access_key_id: secretField(needed),
    secret_access_key: secretField(needed),
    session_token: secretField(),
  },
  webdav: {
    url: publicField(addressFault, { needed: true, location: true }),
    root_path: publicField(davPathFault, location),
    username: publicField(text(255, /^[^\p{Cc}:]+$/u, 'must be a user name without colons'), needed),
    password: secretField(needed),
  },
};

/** The names of the secrets of a type. */
export function secretFieldsOf(type: BackendType): string[] {
  return Object.entries(configFields[type]).flatMap(([name, field]) => (field.secret ? [name] : []));
}

/**
 * What is wrong with a configuration of public values: keys that are unknown or secret, values that are wrong, what is
 * needed and missing. No value is quoted.
 */
export function backendConfigFaults(type: BackendType, config: Readonly<Record<string, JsonValue>>): FieldError[] {
  const fields = configFields[type];
  const faults: FieldError[] = [];
  for (const [key, value] of Object.entries(config)) {
    const field = Object.hasOwn(fields, key) ? fields[key] : undefined;
    const pointer = `/config/${key.replaceAll('~', '~0').replaceAll('/', '~1').slice(0, 200)}`;
    if (field?.secret) faults.push({ pointer, detail: 'is a secret, which is never part of a configuration' });
    else if (!field) faults.push({ pointer, detail: `is not a setting of a backend of the type ${type}` });
    else {
      const fault = field.fault(value);
      if (fault !== null) faults.push({ pointer, detail: fault });
    }
  }
  for (const [key, field] of Object.entries(fields)) {
    if (field.needed && !field.secret && !Object.hasOwn(config, key)) {
      faults.push({ pointer: `/config/${key}`, detail: 'is needed' });
    }
  }
  return faults;
}

function folderFault(value: JsonValue): string | null {
  if (typeof value !== 'string') return 'must be a string';
  if (!path.isAbsolute(value) || /\p{Cc}/u.test(value) || Buffer.byteLength(value) > 1_024) {
    return 'must be an absolute path of at most 1024 bytes';
  }
  return value.split('/').includes('..') ? 'must not contain ".."' : null;
}

function prefixFault(value: JsonValue): string | null {
  if (value === '') return null;
  return (
    text(512, /^[A-Za-z0-9!_.*'()-]+(\/[A-Za-z0-9!_.*'()-]+)*\/?$/, 'must be a prefix such as team/stowage')(value) ??
    dotsFault(value)
  );
}

function davPathFault(value: JsonValue): string | null {
  if (value === '/') return null;
  return text(512, /^(\/[A-Za-z0-9._~-]+)+$/, 'must be a path such as /stowage, in ASCII')(value) ?? dotsFault(value);
}

function dotsFault(value: JsonValue): string | null {
  return String(value)
    .split('/')
    .some((part) => /^\.\.?$/.test(part))
    ? 'must not contain "." or ".."'
    : null;
}

/** An http or https address with nothing in it that could be a secret, or mean another host to another reader. */
function addressFault(value: JsonValue): string | null {
  if (typeof value !== 'string') return 'must be a string';
  const url = value.length <= 2_048 && /^https?:\/\/[\x21-\x5b\x5d-\x7e]+$/i.test(value) ? URL.parse(value) : null;
  if (!url) return 'must be an http or https address';
  if (url.username !== '' || url.password !== '' || value.includes('@')) return 'must not hold a user or a password';
  return url.search !== '' || url.hash !== '' || /[?#]/.test(value) ? 'must have no query and no fragment' : null;
}

function originFault(value: JsonValue): string | null {
  const fault = addressFault(value);
  if (fault !== null) return fault;
  return URL.parse(String(value))?.pathname === '/' ? null : 'must be an address without a path';
}

function secretFault(value: JsonValue): string | null {
  if (typeof value !== 'string') return 'must be a string';
  if (value.length > 4_096 || /\p{Cc}/u.test(value))
    return 'must be at most 4096 characters, none of them control ones';
  // What a form shows in place of a secret is not meant to become it.
  return /^[*•●∙·…]+$/u.test(value) ? 'is a mask, not a secret: leave it out to keep what is set' : null;
}
