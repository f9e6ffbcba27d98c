import type { Logger } from '../runtime/logger.ts';
import type { EventBus } from './event-bus.ts';
import { LocalBus } from './local-bus.ts';
import type { NatsAddress } from './nats-address.ts';

/** NATS where there is an address, else a bus within this process. Does not connect yet. */
export async function openEventBus(address: NatsAddress | null, logger: Logger): Promise<EventBus> {
  if (address === null) return new LocalBus();
  // Loaded only where it is used: memory and time of every other start.
  const { NatsBus } = await import('./nats-bus.ts');
  return new NatsBus(address, logger);
}
