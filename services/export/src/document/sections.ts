import Compile from 'typebox/compile';
import { inKeyOrder } from './canonical.ts';
import { recordRules } from './record-rules.ts';
import type { Report } from './record-rules.ts';
import { recordSchemas } from './records.ts';
import type { RecordOf, SectionName } from './records.ts';

/** How one section's records are checked. */
export interface Section<S extends SectionName> {
  name: S;
  /** The record, where it is as its schema says. */
  checked(value: unknown): RecordOf<S> | null;
  /** What its schema has against it: the field, as a pointer, and a sentence. */
  schemaFaults(value: unknown, report: Report): void;
  rules(record: RecordOf<S>, report: Report): void;
  /** What records are ordered by, and no two have in common. */
  idOf(record: RecordOf<S>): string;
}

/** At most so many faults of one record are told. */
const faultsMax = 20;

function section<S extends SectionName>(
  name: S,
  validator: { Check(value: unknown): value is RecordOf<S>; Errors(value: unknown): SchemaFault[] },
  idOf: (record: RecordOf<S>) => string,
): Section<S> {
  return {
    name,
    idOf,
    checked: (value) => (validator.Check(value) ? value : null),
    schemaFaults: (value, report) => tellSchemaFaults(validator.Errors(value), report),
    rules: recordRules[name],
  };
}

interface SchemaFault {
  keyword: string;
  instancePath: string;
  params: object;
  message: string;
}

function tellSchemaFaults(faults: readonly SchemaFault[], report: Report): void {
  const told = new Set<string>();
  for (const { keyword, instancePath, params, message } of faults) {
    if (told.size >= faultsMax) return;
    if (keyword === 'required' && 'requiredProperties' in params && Array.isArray(params.requiredProperties)) {
      for (const field of params.requiredProperties.slice(0, faultsMax)) {
        report(`${instancePath}/${String(field)}`, 'missing', 'This field is needed.');
      }
    } else if (keyword === 'additionalProperties' || told.has(instancePath)) continue;
    else if (keyword === 'boolean') report(cut(instancePath), 'unknown_field', 'There is no such field.');
    else report(cut(instancePath), codes[keyword] ?? 'invalid', `The value ${message}.`);
    told.add(instancePath);
  }
}

const codes: Readonly<Record<string, string>> = {
  type: 'wrong_type',
  minimum: 'out_of_range',
  maximum: 'out_of_range',
  maxLength: 'out_of_range',
  minItems: 'out_of_range',
  maxItems: 'out_of_range',
};

function cut(pointer: string): string {
  return pointer.slice(0, 300).toWellFormed();
}

// Apart from their use, which would hide their types from inference.
const validators = {
  directories: Compile(recordSchemas.directories),
  files: Compile(recordSchemas.files),
  blobs: Compile(recordSchemas.blobs),
  replicas: Compile(recordSchemas.replicas),
  backends: Compile(recordSchemas.backends),
  policies: Compile(recordSchemas.policies),
};

export const sections: { readonly [S in SectionName]: Section<S> } = {
  directories: section('directories', validators.directories, ({ id }) => id),
  files: section('files', validators.files, ({ id }) => id),
  blobs: section('blobs', validators.blobs, ({ id }) => id),
  replicas: section('replicas', validators.replicas, (record) => `${record.blob_id} ${record.backend_id}`),
  backends: section('backends', validators.backends, ({ id }) => id),
  policies: section('policies', validators.policies, (record) => record.file_class),
};

/** A value with the keys of all its objects in the order of RFC 8785. Nothing is copied where they are so already. */
export function inOrder(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(inOrder);
  let last = '';
  let ordered = true;
  for (const [key, inner] of Object.entries(value)) {
    if (key < last || (typeof inner === 'object' && inner !== null)) ordered = false;
    last = key;
  }
  if (ordered) return value;
  return inKeyOrder(Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, inOrder(inner)])));
}
