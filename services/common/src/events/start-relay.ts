import type { Kysely } from 'kysely';
import type { Logger } from '../runtime/logger.ts';
import type { DependencyState } from '../runtime/service.ts';
import { withinWait } from '../within-wait.ts';
import type { EventBus } from './event-bus.ts';
import type { NatsAddress } from './nats-address.ts';
import { openEventBus } from './open-event-bus.ts';
import { OutboxRelay } from './outbox-relay.ts';
import { relayMetrics } from './relay-metrics.ts';

/** A relay with a bus of its own. */
export interface RunningRelay {
  /** Whether the bus can be reached and takes events; within a second. */
  state(): Promise<DependencyState>;
  stop(): Promise<void>;
}

/** Less than whoever asks for readiness waits. */
const checkMs = 1_000;

/** Begins to publish the outbox, to NATS where there is an address. Whether that is there now does not matter. */
export async function startRelay<T>(db: Kysely<T>, address: NatsAddress | null, logger: Logger): Promise<RunningRelay> {
  const bus = await openEventBus(address, logger);
  const metrics = relayMetrics(db, () => works(), logger);
  const relay = new OutboxRelay({ db, bus, logger, onPublished: metrics.published });
  const works = async (): Promise<boolean> => !relay.busFails && answers(bus);
  relay.start();
  return {
    state: async () => {
      const ready = await works();
      return { name: 'event_bus', works: ready, detail: ready ? '' : 'can not be reached; events wait in the outbox' };
    },
    stop: async () => {
      metrics.stop();
      await relay.stop();
      await bus.close();
    },
  };
}

async function answers(bus: EventBus): Promise<boolean> {
  const check = bus.check().then(
    () => true,
    () => false,
  );
  return (await withinWait(check, checkMs)) === true;
}
