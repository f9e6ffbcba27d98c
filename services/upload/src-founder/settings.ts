import { byteSize, duration, integer, setting } from '@stowage/common/runtime/settings';
import type { Values } from '@stowage/common/runtime/settings';

/** The settings of upload. */
export const uploadSettings = {
  maxUploadBytes: setting('STOWAGE_MAX_UPLOAD_BYTES', 'The longest upload.', byteSize, { fallback: '1TiB' }),
  expiryMs: setting('STOWAGE_UPLOAD_EXPIRY', 'How long an unfinished upload lives without a byte.', duration, { fallback: '24h' }),
  uploadsPerUser: setting('STOWAGE_UPLOADS_PER_USER', 'Unfinished uploads of each user.', integer(1, 1_000_000), { fallback: '1000' }),
  appendsPerUser: setting('STOWAGE_APPENDS_PER_USER', 'Running PATCHes of each user in this process.', integer(1, 100_000), {
    fallback: '32',
  }),
  leaseMs: setting('STOWAGE_UPLOAD_LEASE', 'After how long a dead process’s hold on an upload ends.', duration, { fallback: '5s' }),
  leaseWaitMs: setting('STOWAGE_LEASE_WAIT', 'How long a second writer waits for the first to stop.', duration, { fallback: '2s' }),
};

export type UploadSettings = Values<typeof uploadSettings>;
