import { natsAddress } from '@stowage/common/events/nats-address';
import type { NatsAddress } from '@stowage/common/events/nats-address';
import { duration, setting } from '@stowage/common/runtime/settings';
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
};

export type PlacementSettings = Values<typeof placementSettings>;
