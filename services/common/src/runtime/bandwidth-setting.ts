import { byteSizeWithin, setting } from './settings.ts';

/** Below this a store over the network would take a piece that is waited for as a connection that died. */
const least = 256 * 1024;

/** Of those who move bytes in the background, and of those who wait for them. */
export const bandwidthSetting = setting<number | null>(
  'STOWAGE_RECONCILE_BANDWIDTH',
  'Bytes a second that copies and verifications may move in each backend-registry; unset, no limit.',
  byteSizeWithin(least, Number.MAX_SAFE_INTEGER),
  { absent: null },
);
