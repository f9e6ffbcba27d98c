import { rootDirectoryId, isId } from '@stowage/common/ids';
import { OnConflict } from '@stowage/proto/stowage/catalog/v1/node';
import type { IncomingHttpHeaders } from 'node:http';
import { fault, strictBase64 } from './headers.ts';

/** What a client may say of its upload in Upload-Metadata. */
export interface UploadTarget {
  filename?: string;
  directoryId?: string;
  mediaType?: string;
  fileClass?: string;
  sha256?: Uint8Array;
  onConflict: OnConflict;
}

const header = 'upload-metadata';
const maxBytes = 8 * 1024;
const maxPairs = 16;
/** A byte order mark is part of a value: nothing is trimmed silently. */
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Parses and checks the Upload-Metadata header. Keys that mean nothing to us are kept by the service and ignored here. */
export function parseMetadata(headers: IncomingHttpHeaders): UploadTarget {
  const raw = headers[header];
  if (raw === undefined) return { onConflict: OnConflict.UNSPECIFIED };
  return targetOf(pairsOf(String(raw)));
}

function pairsOf(raw: string): Map<string, string> {
  if (Buffer.byteLength(raw) > maxBytes) throw fault(header, `must be at most ${maxBytes} bytes`);
  const pairs = new Map<string, string>();
  if (raw.trim() === '') return pairs;
  for (const pair of raw.split(',')) {
    const [key = '', encoded = '', ...rest] = pair.trim().split(' ');
    if (!/^[\x21-\x2b\x2d-\x7e]+$/.test(key) || rest.length > 0)
      throw fault(header, 'must hold pairs of a key and a base64 value');
    if (pairs.has(key)) throw fault(header, `has the key ${key} twice`);
    pairs.set(key, textOf(key, encoded));
    if (pairs.size > maxPairs) throw fault(header, `must hold at most ${maxPairs} pairs`);
  }
  return pairs;
}

function textOf(key: string, encoded: string): string {
  const bytes = strictBase64(encoded);
  if (bytes === null) throw fault(header, `has a value of ${key} that is not base64`);
  try {
    return utf8.decode(bytes);
  } catch {
    throw fault(header, `has a value of ${key} that is not UTF-8`);
  }
}

function targetOf(pairs: Map<string, string>): UploadTarget {
  const target: UploadTarget = { onConflict: conflictOf(pairs.get('on_conflict')) };
  const filename = pairs.get('filename');
  const directory = pairs.get('directory_id');
  const mediaType = pairs.get('filetype');
  const fileClass = pairs.get('file_class');
  const sha256 = pairs.get('sha256');
  if (filename !== undefined) target.filename = filename;
  if (directory) target.directoryId = directoryOf(directory);
  if (mediaType) target.mediaType = mediaType.slice(0, 255);
  if (fileClass) target.fileClass = classOf(fileClass);
  if (sha256) target.sha256 = digestOf(sha256);
  return target;
}

function conflictOf(value: string | undefined): OnConflict {
  if (value === undefined || value === '') return OnConflict.UNSPECIFIED;
  if (value === 'rename') return OnConflict.RENAME;
  if (value === 'fail') return OnConflict.FAIL;
  throw fault(header, 'has an on_conflict that is neither fail nor rename');
}

function directoryOf(value: string): string {
  if (value === 'root') return rootDirectoryId;
  if (!isId(value)) throw fault(header, 'has a directory_id that is no id');
  return value;
}

function classOf(value: string): string {
  if (!/^[a-z][a-z0-9_-]{0,62}$/.test(value)) throw fault(header, 'has a file_class that is none');
  return value;
}

function digestOf(value: string): Buffer {
  if (!/^[0-9a-f]{64}$/i.test(value)) throw fault(header, 'has a sha256 that is not 64 hex digits');
  return Buffer.from(value, 'hex');
}
