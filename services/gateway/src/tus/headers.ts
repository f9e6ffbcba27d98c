import { AppError, validationError } from '@stowage/common/errors';
import type { IncomingHttpHeaders } from 'node:http';

/** The protocol that is spoken: https://tus.io/protocols/resumable-upload, 1.0.0. */
export const tusVersion = '1.0.0';
export const tusExtensions = 'creation,creation-with-upload,creation-defer-length,expiration,termination,checksum';
export const offsetMediaType = 'application/offset+octet-stream';

const digestBytes = { sha1: 20, sha256: 32 } as const;
export const checksumAlgorithms = Object.keys(digestBytes).join(',');

/** Refuses requests of another protocol version, before anything is done. */
export function checkVersion(headers: IncomingHttpHeaders): void {
  if (headers['tus-resumable'] === tusVersion) return;
  throw new AppError('tus_version_unsupported', `Send "Tus-Resumable: ${tusVersion}".`);
}

/** `Upload-Length` or `Upload-Defer-Length: 1`, exactly one of them; null is deferred. */
export function uploadLength(headers: IncomingHttpHeaders): number | null {
  const defer = headers['upload-defer-length'];
  if (defer === undefined) {
    const length = wholeNumber(headers, 'upload-length');
    if (length === null) throw fault('upload-length', 'is needed, or Upload-Defer-Length: 1');
    return length;
  }
  if (headers['upload-length'] !== undefined) throw fault('upload-defer-length', 'can not go with Upload-Length');
  if (defer !== '1') throw fault('upload-defer-length', 'can only be 1');
  return null;
}

/** The length that a PATCH declares for a deferred upload, or null. */
export function declaredLength(headers: IncomingHttpHeaders): number | null {
  return wholeNumber(headers, 'upload-length');
}

/** The needed `Upload-Offset`. */
export function uploadOffset(headers: IncomingHttpHeaders): number {
  const offset = wholeNumber(headers, 'upload-offset');
  if (offset === null) throw fault('upload-offset', 'is needed');
  return offset;
}

/** The length of the body where the client tells it, else null (chunked). */
export function bodyLength(headers: IncomingHttpHeaders): number | null {
  return headers['transfer-encoding'] === undefined ? (wholeNumber(headers, 'content-length') ?? 0) : null;
}

export function checkBodyType(headers: IncomingHttpHeaders): void {
  if (headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase() === offsetMediaType) return;
  throw new AppError('unsupported_media_type', `Send the bytes as ${offsetMediaType}.`);
}

/** `Upload-Checksum: <algorithm> <base64>` (checksum extension), or null. */
export function uploadChecksum(headers: IncomingHttpHeaders): { algorithm: string; digest: Buffer } | null {
  const header = headers['upload-checksum'];
  if (header === undefined) return null;
  const [algorithm = '', encoded = '', ...rest] = String(header).split(' ');
  const length = Object.entries(digestBytes).find(([name]) => name === algorithm)?.[1];
  if (length === undefined) throw fault('upload-checksum', `must name one of ${checksumAlgorithms}`);
  const digest = strictBase64(encoded);
  if (rest.length > 0 || digest?.length !== length)
    throw fault('upload-checksum', `must hold ${length} bytes in base64`);
  return { algorithm, digest };
}

/** Decodes base64 with padding; null for anything that does not encode back to itself. */
export function strictBase64(text: string): Buffer | null {
  const bytes = Buffer.from(text, 'base64');
  return bytes.toString('base64') === text ? bytes : null;
}

/** A 400 that points at a header. */
export function fault(header: string, detail: string): AppError {
  return validationError([{ pointer: `/headers/${header}`, detail }]);
}

/** A run of at most 16 digits without sign or leading zero; null where the header is absent. */
function wholeNumber(headers: IncomingHttpHeaders, name: string): number | null {
  const header = headers[name];
  if (header === undefined) return null;
  const value = Number(header);
  if (typeof header !== 'string' || !/^(0|[1-9]\d{0,15})$/.test(header) || !Number.isSafeInteger(value)) {
    throw fault(name, 'must be a whole number of bytes');
  }
  return value;
}
