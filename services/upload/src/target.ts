import { validationError } from '@stowage/common/errors';
import type { FieldError } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import { normalizeName } from '@stowage/common/names';
import { OnConflict } from '@stowage/proto/stowage/catalog/v1/node';
import type { UploadTarget } from '@stowage/proto/stowage/upload/v1/upload';
import type { onConflicts } from './uploads.ts';

/** What a client said of the file to be; null where it said nothing. */
export interface Target {
  filename: string | null;
  directoryId: string | null;
  mediaType: string | null;
  fileClass: string | null;
  sha256: Buffer | null;
  onConflict: keyof typeof onConflicts | null;
}

const classPattern = /^[a-z][a-z0-9_-]{0,62}$/;
const hashBytes = 32;

/** Checks the form of what is set. Throws `validation_failed`; the name comes back in NFC. */
export function checkTarget(target: UploadTarget | undefined): Target {
  const { filename, directoryId, mediaType, fileClass, sha256, onConflict } = target ?? {};
  const errors: FieldError[] = [];
  if (directoryId !== undefined && !isId(directoryId))
    errors.push({ pointer: '/directory_id', detail: 'must be an id' });
  if (fileClass !== undefined && !classPattern.test(fileClass)) {
    errors.push({ pointer: '/file_class', detail: 'must match [a-z][a-z0-9_-]{0,62}' });
  }
  if (sha256 !== undefined && sha256.length !== hashBytes) {
    errors.push({ pointer: '/sha256', detail: `must have ${hashBytes} bytes` });
  }
  if (errors.length > 0) throw validationError(errors);
  return {
    filename: filename === undefined ? null : normalizeName(filename, '/filename'),
    directoryId: directoryId ?? null,
    mediaType: mediaType === undefined ? null : hint(mediaType),
    fileClass: fileClass ?? null,
    sha256: sha256 === undefined ? null : Buffer.from(sha256),
    onConflict: onConflict === OnConflict.RENAME ? 'rename' : onConflict === OnConflict.FAIL ? 'fail' : null,
  };
}

/** A media type is a hint only: what is no header value is none. */
function hint(mediaType: string): string | null {
  return /^[\x20-\x7e]{1,255}$/.test(mediaType) ? mediaType : null;
}

/** A claimed media type without parameters, in lower case. */
export function bareMediaType(claimed: string | null): string {
  return claimed?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
}
