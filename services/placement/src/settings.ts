import { natsAddress } from '@stowage/common/events/nats-address';
import type { NatsAddress } from '@stowage/common/events/nats-address';
import { bandwidthSetting } from '@stowage/common/runtime/bandwidth-setting';
import { natsCredentials, pemCertificates } from '@stowage/common/events/nats-credentials';
import type { NatsCredentials } from '@stowage/common/events/nats-credentials';
import { StartupError } from '@stowage/common/runtime/run-process';
import { duration, integer, positiveDuration, setting, timeout } from '@stowage/common/runtime/settings';
import type { Values } from '@stowage/common/runtime/settings';

/** The settings of placement. */
export const placementSettings = {
  jobRetentionMs: setting('STOWAGE_JOB_RETENTION', 'How long finished jobs are kept.', duration, { fallback: '14d' }),
  failedJobRetentionMs: setting('STOWAGE_FAILED_JOB_RETENTION', 'How long failed jobs are kept.', duration, {
    fallback: '90d',
  }),
  eventRetentionMs: setting('STOWAGE_EVENT_RETENTION', 'How long published events are kept.', duration, {
    fallback: '7d',
  }),
  natsAddress: setting<NatsAddress | null>(
    'STOWAGE_NATS_URL',
    'NATS 2.9 or later with JetStream, as nats://…; without it events stay within the process.',
    natsAddress,
    { absent: null, secret: true },
  ),
  natsCredentials: setting<NatsCredentials | null>(
    'STOWAGE_NATS_CREDS',
    'A creds file of NATS, or the seed of an nkey; in place of a user in the address.',
    natsCredentials,
    { absent: null, secret: true },
  ),
  natsCa: setting<string | null>(
    'STOWAGE_NATS_CA',
    'Certificates in PEM that NATS must be vouched for by, over TLS.',
    pemCertificates,
    { absent: null, secret: true },
  ),
  checkIntervalMs: setting('STOWAGE_CHECK_INTERVAL', 'How often each enabled backend is probed.', timeout, {
    fallback: '1m',
  }),
  scrubAfterMs: setting('STOWAGE_SCRUB_AFTER', 'After how long a copy is read whole again.', positiveDuration, {
    fallback: '30d',
  }),
  graceMs: setting('STOWAGE_GC_GRACE', 'How long content that no file refers to is kept on the backends.', duration, {
    fallback: '7d',
  }),
  outageGraceMs: setting(
    'STOWAGE_OUTAGE_GRACE',
    'How long a backend may be unhealthy before other backends of a policy stand in for it.',
    duration,
    { fallback: '6h' },
  ),
  reconcileIntervalMs: setting(
    'STOWAGE_RECONCILE_INTERVAL',
    'How often all content is brought to where its policies say, beside every change of a policy.',
    timeout,
    { fallback: '1h' },
  ),
  reconcileBandwidth: bandwidthSetting,
  reconcileConcurrency: setting(
    'STOWAGE_RECONCILE_CONCURRENCY',
    'How many blobs a full reconcile works on at once.',
    integer(1, 256),
    {
      fallback: '32',
    },
  ),
};

export type PlacementSettings = Values<typeof placementSettings>;

/** Where NATS is, with all that it takes to be let in; null for none. Throws StartupError where the settings disagree. */
export function natsAccess(settings: PlacementSettings): NatsAddress | null {
  const { natsAddress: address, natsCredentials: credentials, natsCa: ca } = settings;
  if (address === null) {
    if (credentials === null && ca === null) return null;
    throw new StartupError(
      'STOWAGE_NATS_CREDS and STOWAGE_NATS_CA need STOWAGE_NATS_URL: no events are sent without it.',
    );
  }
  if (credentials !== null && (address.user ?? address.token) !== null)
    throw new StartupError('STOWAGE_NATS_URL holds a user, and STOWAGE_NATS_CREDS is set too: leave one of them out.');
  return { ...address, ...(credentials === null ? {} : { credentials }), ...(ca === null ? {} : { ca }) };
}
