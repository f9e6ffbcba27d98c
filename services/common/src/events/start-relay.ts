import type { Kysely } from 'kysely';
import type { Logger } from '../runtime/logger.ts';
import type { NatsAddress } from './nats-address.ts';
import { openEventBus } from './open-event-bus.ts';
import { OutboxRelay } from './outbox-relay.ts';

/** A relay with a bus of its own. */
export interface RunningRelay {
  stop(): Promise<void>;
}

/** Begins to publish the outbox, to NATS where there is an address. Whether that is there now does not matter. */
export async function startRelay<T>(db: Kysely<T>, address: NatsAddress | null, logger: Logger): Promise<RunningRelay> {
  const bus = await openEventBus(address, logger);
  const relay = new OutboxRelay({ db, bus, logger });
  relay.start();
  return {
    stop: async () => {
      await relay.stop();
      await bus.close();
    },
  };
}
