import { usualLimits } from './idle-limit.ts';
import type { StoreLimits } from './idle-limit.ts';

/** How long a WebDAV server may take, and how much it may say. */
export interface WebdavLimits extends StoreLimits {
  /** For the whole listing of one folder, in milliseconds. */
  listMs: number;
  /** Of the listing of one folder, in bytes. At some 500 for each it is half a million blobs a folder. */
  listBytes: number;
  /** For taking back what a failed write left, in milliseconds. */
  cleanUpMs: number;
}

export const usualWebdavLimits: WebdavLimits = {
  ...usualLimits,
  listMs: 600_000,
  listBytes: 256 * 1024 * 1024,
  cleanUpMs: 5_000,
};
