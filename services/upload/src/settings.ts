import { byteSize, integer, positiveDuration, setting, timeout, waitingTime } from '@stowage/common/runtime/settings';
import type { Values } from '@stowage/common/runtime/settings';

/** The settings of upload. */
export const uploadSettings = {
  expiryMs: setting(
    'STOWAGE_UPLOAD_EXPIRY',
    'How long an unfinished upload is kept without a byte.',
    positiveDuration,
    {
      fallback: '24h',
    },
  ),
  maxUploadBytes: setting('STOWAGE_MAX_UPLOAD_BYTES', 'The longest upload.', byteSize, { fallback: '1TiB' }),
  uploadsPerUser: setting('STOWAGE_UPLOADS_PER_USER', 'Unfinished uploads of one user.', integer(1, 1_000_000), {
    fallback: '1000',
  }),
  appendsPerUser: setting(
    'STOWAGE_APPENDS_PER_USER',
    'Bodies that one user sends at a time to each upload process.',
    integer(1, 100_000),
    { fallback: '32' },
  ),
  leaseWaitMs: setting('STOWAGE_LEASE_WAIT', 'How long a writer waits for the one before it to stop.', waitingTime, {
    fallback: '2s',
  }),
  leaseMs: setting('STOWAGE_UPLOAD_LEASE', 'After how long the upload of a dead writer is free again.', timeout, {
    fallback: '5s',
  }),
};

export type UploadSettings = Values<typeof uploadSettings>;
