import { inKeyOrder } from '../document/canonical.ts';
import type { SectionName } from '../document/records.ts';

/** An SQL expression of type text that is the JSON of a column, never null. */
type Written = string;

/** Needs no escape: an id, a time, hexadecimal, base64, a word of ours. */
const plain = (expression: string): Written => `'"' || ${expression} || '"'`;
/** `to_json` escapes what JSON.stringify does, as it does; a test compares them. */
const text = (expression: string): Written => `to_json(${expression})::text`;
/** Sizes and versions stay far below 2^53: their digits are what RFC 8785 wants. */
const literal = (expression: string): Written => `${expression}::text`;
const time = (column: string): Written =>
  plain(`to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`);
const orNull = (written: Written): Written => `coalesce(${written}, 'null')`;

/** Keys as in RFC 8785: by UTF-16 code units. */
function line(fields: Readonly<Record<string, Written>>): string {
  const members = Object.entries(inKeyOrder(fields)).map(([key, written], index) => {
    return `'${index === 0 ? '{' : ','}"${key}":' || ${written}`;
  });
  return `${members.join(' || ')} || '}'`;
}

const node = {
  created_at: time('created_at'),
  deleted_at: orNull(time('deleted_at')),
  id: plain('id'),
  name: text('name'),
  parent_id: orNull(plain('parent_id')),
  purge_at: orNull(time('purge_at')),
  purged_at: orNull(time('purged_at')),
  updated_at: time('updated_at'),
  version: literal('version'),
};

const file = {
  ...node,
  blob_id: plain('blob_id'),
  file_class: plain('file_class'),
  media_type: text('media_type'),
  size: literal('size'),
};

const blob = {
  chunk_crc32c: plain(`translate(encode(chunk_crc32c, 'base64'), e'\\n', '')`),
  created_at: time('created_at'),
  delete_after: orNull(time('delete_after')),
  id: plain('id'),
  sha256: orNull(plain(`encode(sha256, 'hex')`)),
  size: literal('size'),
};

const replica = {
  backend_id: plain('backend_id'),
  blob_id: plain('blob_id'),
  created_at: time('created_at'),
  key: text('key'),
  state: plain('state'),
  verified_at: orNull(time('verified_at')),
};

const members = `select string_agg(to_json(key)::text || ':' || value, ',' order by key collate "C") from jsonb_each(b.config)`;

const backend = {
  // Its keys are ASCII, where the order of bytes is that of code units.
  config: `'{' || coalesce((${members}), '') || '}'`,
  created_at: time('b.created_at'),
  enabled: literal('b.enabled'),
  id: plain('b.id'),
  is_default: literal('b.is_default'),
  marked: literal('b.marked'),
  name: text('b.name'),
  secret_fields: literal(`to_json(coalesce(s.fields, '{}'))`),
  type: plain('b.type'),
  updated_at: time('b.updated_at'),
  version: literal('b.version'),
};

const policy = {
  backends: literal(`to_json(array(
    select backend_id from placement.policy_backends b where b.file_class = p.file_class order by position))`),
  file_class: plain('file_class'),
  replicas: literal('replicas'),
  sync_replicas: literal('sync_replicas'),
  updated_at: time('updated_at'),
  version: literal('version'),
};

/** Each gives one column, a record in canonical JSON, in the order of the section's ids. */
export const sectionQueries: Readonly<Record<SectionName, string>> = {
  directories: `select ${line(node)} from catalog.nodes where kind = 'directory' order by id`,
  files: `select ${line(file)} from catalog.nodes where kind = 'file' order by id`,
  blobs: `select ${line(blob)} from catalog.blobs order by id`,
  replicas: `select ${line(replica)} from catalog.replicas order by blob_id, backend_id`,
  backends: `
    select ${line(backend)}
    from registry.backends b left join registry.backend_secret_fields s on s.backend_id = b.id order by b.id`,
  policies: `select ${line(policy)} from placement.policies p order by file_class collate "C"`,
};
