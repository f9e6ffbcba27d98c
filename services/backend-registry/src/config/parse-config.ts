import type { JsonObject, JsonValue } from '@bufbuild/protobuf';
import { configFields } from '@stowage/common/backend-config';
import { validationError } from '@stowage/common/errors';
import type { FieldError } from '@stowage/common/errors';
import { backendTypes } from '@stowage/common/backend-config';
import type { BackendType } from '@stowage/common/backend-config';
import { isReference, noReferences, readReference } from '../secrets/secret-ref.ts';
import type { ReferencedSecrets, SecretRef } from '../secrets/secret-ref.ts';
import type { SecretRefs } from '../secrets/secret-table.ts';

/** A backend's configuration, with secrets apart. */
export interface ParsedConfig {
  /** Public values only. */
  config: JsonObject;
  /** Those that were given a new value. */
  secrets: Record<string, string>;
  /** Those whose value is to be in a Kubernetes Secret from now on. */
  refs: SecretRefs;
}

/** Throws `validation_failed` for another word. */
export function parseType(text: string): BackendType {
  const type = backendTypes.find((known) => known === text);
  if (!type) throw validationError([{ pointer: '/type', detail: `must be one of ${backendTypes.join(', ')}` }]);
  return type;
}

/**
 * Merges what a client sent into `current`, the public configuration so far; null for a new backend, which needs all that
 * its type needs. Secrets that are null or empty count as left out. Throws `validation_failed` with a pointer for each
 * key that is unknown to this type, missing or wrong, and for a Secret that may not be referred to; no value is quoted.
 */
export function parseConfig(
  type: BackendType,
  given: JsonObject,
  current: JsonObject | null,
  references: ReferencedSecrets = noReferences,
): ParsedConfig {
  const fields = configFields[type];
  const refs: Record<string, SecretRef> = {};
  const parsed: ParsedConfig = { config: { ...current }, secrets: {}, refs };
  const faults: FieldError[] = [];
  for (const [key, value] of Object.entries(given)) {
    const field = Object.hasOwn(fields, key) ? fields[key] : undefined;
    const pointer = `/config/${key.replaceAll('~', '~0').replaceAll('/', '~1').slice(0, 200)}`;
    if (field?.secret && isLeftOut(value)) continue;
    if (field?.secret && isReference(value)) {
      const ref = readReference(value);
      const refused = typeof ref === 'string' ? ref : references.refusalOf(ref);
      if (refused !== null) faults.push({ pointer, detail: refused });
      else if (typeof ref !== 'string') refs[key] = ref;
      continue;
    }
    const fault = field ? field.fault(value) : `is not a setting of a backend of the type ${type}`;
    if (fault !== null) faults.push({ pointer, detail: fault });
    else if (field?.secret && typeof value === 'string') parsed.secrets[key] = value;
    else parsed.config[key] = value;
  }
  const present = { ...parsed.config, ...parsed.secrets, ...refs };
  for (const [key, field] of Object.entries(fields)) {
    const refused = faults.some(({ pointer }) => pointer === `/config/${key}`);
    if (current === null && field.needed && !(key in present) && !refused) {
      faults.push({ pointer: `/config/${key}`, detail: 'is needed' });
    }
  }
  if (faults.length > 0) throw validationError(faults);
  return parsed;
}

/** Whether two configurations name different places. */
export function isMoved(type: BackendType, before: JsonObject, after: JsonObject): boolean {
  return Object.entries(configFields[type]).some(
    ([key, field]) => field.location && (before[key] ?? null) !== (after[key] ?? null),
  );
}

function isLeftOut(value: JsonValue): boolean {
  return value === null || value === '';
}
