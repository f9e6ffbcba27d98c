import {
  AckPolicy,
  DeliverPolicy,
  DiscardPolicy,
  JetStreamApiError,
  RetentionPolicy,
  StorageType,
} from '@nats-io/jetstream';
import type { JetStreamManager, StreamInfo } from '@nats-io/jetstream';
import { nanos } from '@nats-io/transport-node';

/** The stream that holds all events. */
export interface StreamOptions {
  name: string;
  subjects: string[];
  /** How long the stream knows an id, so that it drops what comes again. */
  duplicateWindowMs: number;
  /** How long NATS waits for an acknowledgement before it delivers again. */
  ackWaitMs: number;
}

const retentionMs = 7 * 24 * 60 * 60_000;

export const defaultStream: StreamOptions = {
  name: 'STOWAGE',
  subjects: ['stowage.jobs.>', 'stowage.files.>'],
  // Longer than a publisher can be at an event that lost its lease. Whatever is tried again later, as after an outage, is
  // looked up in the stream first.
  duplicateWindowMs: 5 * 60_000,
  ackWaitMs: 30_000,
};

const streamNotFound = 10_059;

/** Makes the stream, or brings one of before up to date; what an operator set of the rest stays, such as replicas. */
export async function ensureStream(manager: JetStreamManager, stream: StreamOptions): Promise<StreamInfo> {
  const { name, subjects } = stream;
  const limits = { max_age: nanos(retentionMs), duplicate_window: nanos(stream.duplicateWindowMs) };
  const present = await findStream(manager, name);
  if (!present) {
    return manager.streams.add({
      name,
      subjects,
      ...limits,
      description: 'Events of Stowage',
      retention: RetentionPolicy.Limits,
      storage: StorageType.File,
      discard: DiscardPolicy.Old,
    });
  }
  const { config } = present;
  const same =
    config.max_age === limits.max_age &&
    config.duplicate_window === limits.duplicate_window &&
    [...config.subjects].sort().join() === [...subjects].sort().join();
  return same ? present : manager.streams.update(name, { ...config, ...limits, subjects });
}

/** What NATS says of a stream, or null where there is none: it is made again by whoever publishes next. */
export async function findStream(manager: JetStreamManager, name: string): Promise<StreamInfo | null> {
  try {
    return await manager.streams.info(name);
  } catch (error) {
    if (error instanceof JetStreamApiError && error.code === streamNotFound) return null;
    throw error;
  }
}

/** Makes a durable consumer that has one event under way at a time, so that their order holds, or finds it. */
export async function ensureConsumer(
  manager: JetStreamManager,
  stream: StreamOptions,
  name: string,
  filter: string,
): Promise<void> {
  await manager.consumers.add(stream.name, {
    durable_name: name,
    filter_subject: filter,
    ack_policy: AckPolicy.Explicit,
    deliver_policy: DeliverPolicy.New,
    ack_wait: nanos(stream.ackWaitMs),
    max_ack_pending: 1,
    max_deliver: -1,
  });
}
