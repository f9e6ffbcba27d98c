import { AppError, validationError } from '@stowage/common/errors';
import type { FieldError } from '@stowage/common/errors';
import type { Envelope } from '../document/read-envelope.ts';

/** An import that was asked for, and confirmed. */
export interface ImportRequest {
  token: string;
  /** Of the document that was sent along, empty where that is none; null where none was sent. */
  documentSha256: string | null;
}

const fields = {
  confirm_replace: 'boolean',
  validation_token: 'string',
} as const;

/**
 * Checks what an import says; `confirmed` is what its address says, which counts as what the body says. Throws
 * `validation_failed`, and `confirmation_required` where nobody said yes or somebody said no.
 */
export function importRequest(envelope: Envelope, confirmed: boolean | undefined): ImportRequest {
  const faults = [...envelope.fields].flatMap(([key, value]) => fault(key, value) ?? []);
  if (faults.length > 0) throw validationError(faults);
  const said = [envelope.fields.get('confirm_replace'), confirmed];
  if (said.includes(false) || !said.includes(true)) {
    throw new AppError('confirmation_required', 'An import replaces all metadata: say so by confirm_replace=true.');
  }
  const token = envelope.fields.get('validation_token');
  if (typeof token !== 'string') {
    throw validationError([{ pointer: '/validation_token', detail: 'is needed: a restore plan gives it' }]);
  }
  const { document } = envelope;
  const isWhole = document !== null && document.errors.length === 0;
  return { token, documentSha256: document === null ? null : isWhole ? document.sha256 : '' };
}

function fault(key: string, value: unknown): FieldError | null {
  const pointer = `/${key.slice(0, 200).toWellFormed().replaceAll('~', '~0').replaceAll('/', '~1')}`;
  if (key === 'document') return { pointer, detail: 'must be a metadata document' };
  if (key !== 'confirm_replace' && key !== 'validation_token')
    return { pointer, detail: 'is not a field of this request' };
  const wanted = fields[key];
  return typeof value === wanted ? null : { pointer, detail: `must be a ${wanted}` };
}
