import { backendConfigFaults, secretFieldsOf } from '@stowage/common/backend-config';
import { blobKey } from '@stowage/common/blob-key';
import { chunkBytes } from '@stowage/common/content-chunks';
import { rootDirectoryId } from '@stowage/common/ids';
import { isMediaType } from '@stowage/common/media-type';
import { nameFault } from '@stowage/common/names';
import { isRealTime } from './real-time.ts';
import type { RecordOf, SectionName } from './records.ts';

/** Tells of a fault: the field, as a pointer within the record, a code and a sentence. */
export type Report = (field: string, code: string, detail: string) => void;

type Rules = { readonly [S in SectionName]: (record: RecordOf<S>, report: Report) => void };

/** What a record must be beyond its schema, and can be seen in it alone. */
export const recordRules: Rules = {
  directories: (record, report) => {
    if (record.id === rootDirectoryId) root(record, report);
    else node(record, report);
  },
  files: (record, report) => {
    node(record, report);
    if (record.id === rootDirectoryId)
      report('/id', 'root_invalid', 'The id of the root directory can not be a file’s.');
    if (!isMediaType(record.media_type)) report('/media_type', 'invalid', 'This is not a media type.');
  },
  blobs: (record, report) => {
    times(record, ['created_at', 'delete_after'], report);
    chunks(record, report);
    if (record.sha256 === null && record.delete_after === null) {
      report('/sha256', 'invalid', 'Only a blob that waits for its removal can be without a sha256.');
    }
  },
  replicas: (record, report) => {
    times(record, ['created_at', 'verified_at'], report);
    if (record.key !== blobKey(record.blob_id)) {
      report('/key', 'key_invalid', 'This is not the key of the blob: content is only ever found under it.');
    }
  },
  backends: (record, report) => {
    times(record, ['created_at', 'updated_at'], report);
    name(record.name, report);
    for (const { pointer, detail } of backendConfigFaults(record.type, record.config)) {
      report(pointer, 'config_invalid', `It ${detail}.`);
    }
    const secrets = secretFieldsOf(record.type);
    for (const [index, field] of record.secret_fields.entries()) {
      const fault = secrets.includes(field) && record.secret_fields.indexOf(field) === index;
      if (!fault)
        report(`/secret_fields/${index}`, 'invalid', 'This is not a secret of such a backend, or named twice.');
    }
    if (record.is_default && record.type === 'webdav') {
      report('/is_default', 'invalid', 'The default backend is never on a WebDAV server.');
    }
  },
  policies: (record, report) => {
    times(record, ['updated_at'], report);
    for (const [index, id] of record.backends.entries()) {
      if (record.backends.indexOf(id) < index)
        report(`/backends/${index}`, 'duplicate', 'This backend is named twice.');
    }
    if (record.replicas > record.backends.length) {
      report('/replicas', 'out_of_range', 'There can not be more replicas than backends.');
    }
    if (record.sync_replicas > record.replicas) {
      report('/sync_replicas', 'out_of_range', 'There can not be more synchronous replicas than replicas.');
    }
  },
};

type Node = RecordOf<'directories'>;

function root(record: Node, report: Report): void {
  nodeTimes(record, report);
  const isRight =
    record.name === '' && record.parent_id === null && record.deleted_at === null && record.purge_at === null;
  if (!isRight || record.purged_at !== null) {
    report('', 'root_invalid', 'The root directory has no name, no parent and is not deleted.');
  }
}

function node(record: Node, report: Report): void {
  nodeTimes(record, report);
  name(record.name, report);
  if ((record.deleted_at === null) !== (record.purge_at === null)) {
    report('/purge_at', 'bin_invalid', 'Both deleted_at and purge_at are set, or neither is.');
  }
  if (record.parent_id === null && record.deleted_at === null && record.purged_at === null) {
    report('/parent_id', 'parent_missing', 'Only the root, and what was deleted, can be without a parent.');
  }
}

function nodeTimes(record: Node, report: Report): void {
  times(record, ['created_at', 'deleted_at', 'purge_at', 'purged_at', 'updated_at'], report);
}

function name(text: string, report: Report): void {
  const fault = nameFault(text);
  if (fault !== null) report('/name', 'name_invalid', `The name ${fault}.`);
  else if (text.normalize('NFC') !== text) report('/name', 'name_not_nfc', 'The name is not in Unicode’s form NFC.');
}

function times<K extends string>(
  record: Readonly<Record<K, string | null>>,
  fields: readonly K[],
  report: Report,
): void {
  for (const field of fields) {
    const time = record[field];
    if (time !== null && !isRealTime(time)) report(`/${field}`, 'invalid', 'There is no such time.');
  }
}

function chunks({ size, chunk_crc32c: text }: RecordOf<'blobs'>, report: Report): void {
  const bytes = (text.length / 4) * 3 - (text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0);
  if (bytes !== Math.ceil(size / chunkBytes) * 4) {
    report('/chunk_crc32c', 'chunks_mismatch', 'There must be four bytes for each MiB of the size that is begun.');
  } else if (!hasCleanEnd(text)) {
    report('/chunk_crc32c', 'invalid', 'The bits that base64 leaves over must be 0.');
  }
}

/** Otherwise two texts would mean the same bytes. */
function hasCleanEnd(text: string): boolean {
  const tail = text.slice(-4);
  return Buffer.from(tail, 'base64').toString('base64') === tail;
}
