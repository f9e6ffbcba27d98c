import { lstat, realpath } from 'node:fs/promises';
import path from 'node:path';
import { hasCode } from '../stores/local-files.ts';

/** Where a folder really lies, or why it can't be used as one. */
export type Place = { real: string } | { fault: string };

/** The folders that local backends may lie in. */
export class LocalRoots {
  readonly #roots: readonly string[];

  constructor(roots: readonly string[]) {
    this.#roots = roots;
  }

  /** Where `folder` lies once links are followed; a fault where that is in none of the roots. It need not exist yet. */
  async place(folder: string): Promise<Place> {
    const found = await realPlace(folder);
    if ('fault' in found) return found;
    for (const root of this.#roots) {
      const allowed = await realPlace(root);
      if ('real' in allowed && isWithin(found.real, allowed.real)) return found;
    }
    return { fault: 'lies in none of the folders that STOWAGE_LOCAL_ROOTS allows' };
  }
}

/** Whether one of two real paths lies in the other, or both are the same. */
export function overlap(one: string, other: string): boolean {
  return isWithin(one, other) || isWithin(other, one);
}

function isWithin(inner: string, outer: string): boolean {
  return inner === outer || inner.startsWith(outer.endsWith(path.sep) ? outer : outer + path.sep);
}

/** As realpath, for a folder of which the last parts need not exist. */
export async function realPlace(folder: string): Promise<Place> {
  const missing: string[] = [];
  for (let existing = folder; ; existing = path.dirname(existing)) {
    try {
      return { real: path.join(await realpath(existing), ...missing) };
    } catch (error) {
      if (hasCode(error, 'ENOTDIR', 'ELOOP', 'EACCES', 'ENAMETOOLONG')) return { fault: 'can not be used as a folder' };
      if (!hasCode(error, 'ENOENT')) throw error;
    }
    if (await isLink(existing)) return { fault: 'is a link that leads nowhere' };
    missing.unshift(path.basename(existing));
  }
}

async function isLink(file: string): Promise<boolean> {
  return lstat(file).then(
    (found) => found.isSymbolicLink(),
    () => false,
  );
}
