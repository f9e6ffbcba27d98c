import { v7 } from 'uuid';

/** A new UUIDv7 (RFC 9562), lower case: sorts by the time it was made. */
export function newId(): string {
  return v7();
}

/** The one root directory has a fixed id, so that no query is needed to resolve the alias `root`. */
export const rootDirectoryId = '00000000-0000-7000-8000-000000000000';

const idPattern = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

export function isId(value: string): boolean {
  return idPattern.test(value);
}
