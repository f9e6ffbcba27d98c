import type { SectionName } from './records.ts';

/** The format versions that are read: the current and the previous one. */
export const currentVersion = 1;
export const oldestVersion = 1;

/**
 * A record of an older format version as the current one has it; it is checked afterwards. The digest is over the record as
 * it was. The next version makes its change here.
 */
export function upgradeRecord(_version: number, _section: SectionName, record: unknown): unknown {
  return record;
}
