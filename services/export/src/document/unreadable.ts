import { validationError } from '@stowage/common/errors';
import type { AppError } from '@stowage/common/errors';

/** Something about a document: where (a JSON pointer), which code, and a sentence for an admin. */
export interface Finding {
  pointer: string;
  code: string;
  detail: string;
}

/** A document that is not read any further. What was found so far, and this, is its report. */
export class Unreadable extends Error {
  readonly finding: Finding;

  constructor(finding: Finding) {
    super(finding.detail);
    this.finding = finding;
  }
}

/** The 400 of a body that is not JSON, with the place where it stops being so. */
export function notJson(detail: string, pointer: string, byte: number): AppError {
  return validationError([{ pointer, detail: `${detail} (byte ${byte})` }]);
}

/** A JSON pointer (RFC 6901). Long keys are cut, so that an answer stays small. */
export function pointerOf(...steps: readonly (string | number)[]): string {
  return steps
    .map((step) => `/${String(step).slice(0, 200).toWellFormed().replaceAll('~', '~0').replaceAll('/', '~1')}`)
    .join('');
}
