import type { JsonValue } from '@bufbuild/protobuf';

/** A key of a Kubernetes Secret in the namespace of the service. */
export interface SecretRef {
  name: string;
  key: string;
}

/** Where the values are that references name. */
export interface ReferencedSecrets {
  /** Why a Secret can't be referred to here; null where it can. */
  refusalOf(ref: SecretRef): string | null;
  /** The value of a key as it is now, and of which generation. Throws `unavailable` where it is not there, or not known yet. */
  valueOf(ref: SecretRef): Promise<{ value: string; generation: number }>;
  /** Another number after each change of a Secret's values. */
  generationOf(name: string): number;
}

/** For a service that may refer to none. */
export const noReferences: ReferencedSecrets = {
  refusalOf: () => 'can not be a secret_ref: STOWAGE_SECRET_REFS names no Kubernetes Secret that may be referred to',
  valueOf: () => Promise.reject(new Error('no Secret may be referred to')),
  generationOf: () => 0,
};

const namePattern = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/;
const keyPattern = /^[A-Za-z0-9._-]+$/;
const longest = 253;

/** Whether a Kubernetes Secret can have this name. */
export function isSecretName(text: string): boolean {
  return text.length <= longest && namePattern.test(text);
}

/** Whether a value is meant to be a reference, right or not. */
export function isReference(value: JsonValue | undefined): value is { secret_ref: JsonValue } {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && Object.hasOwn(value, 'secret_ref');
}

/** Reads `{ secret_ref: { name, key } }`. A text says what is wrong with it. */
export function readReference(value: { secret_ref: JsonValue }): SecretRef | string {
  const wanted = 'must be a text or { "secret_ref": { "name": "…", "key": "…" } }';
  const ref = value.secret_ref;
  if (Object.keys(value).length > 1 || typeof ref !== 'object' || ref === null || Array.isArray(ref)) return wanted;
  const { name, key, ...more } = ref;
  if (typeof name !== 'string' || typeof key !== 'string' || Object.keys(more).length > 0) return wanted;
  if (!isSecretName(name)) return 'names no Kubernetes Secret: check secret_ref.name';
  if (key.length > longest || !keyPattern.test(key)) return 'names no key of a Kubernetes Secret: check secret_ref.key';
  return { name, key };
}
