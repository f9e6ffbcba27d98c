import { validationError } from './errors.ts';

/** The longest name, in bytes of UTF-8 after NFC. */
export const nameBytesMax = 255;

const refusals: readonly { pattern: RegExp; detail: string }[] = [
  { pattern: /\//, detail: 'must not contain a slash' },
  { pattern: /\p{Cc}/u, detail: 'must not contain control characters' },
  { pattern: /[\u202a-\u202e\u2066-\u2069]/, detail: 'must not contain characters that turn the writing direction' },
  { pattern: /^\.\.?$/, detail: 'must not be "." or ".."' },
  { pattern: /^[\p{White_Space}\ufeff]|[\p{White_Space}\ufeff]$/u, detail: 'must not begin or end with white space' },
];

/**
 * Gives the name in NFC, the form in which names are kept and compared. Throws `validation_failed` at `pointer` for a
 * name that no node may have (contract §1); nothing is trimmed or replaced.
 */
export function normalizeName(name: string, pointer = '/name'): string {
  const normal = name.normalize('NFC');
  const detail = nameFault(normal);
  if (detail !== null) throw validationError([{ pointer, detail }]);
  return normal;
}

/** Why no node may have a name that is in NFC; null where it may. */
export function nameFault(name: string): string | null {
  if (name === '') return 'must not be empty';
  if (!name.isWellFormed()) return 'must not contain unpaired surrogates';
  if (Buffer.byteLength(name) > nameBytesMax) return `must not be longer than ${nameBytesMax} bytes of UTF-8`;
  return refusals.find(({ pattern }) => pattern.test(name))?.detail ?? null;
}
