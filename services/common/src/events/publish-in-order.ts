import type { CloudEvent } from './cloud-event.ts';

/** How a round of publishing ended. */
export interface Published {
  /** The ids that the bus keeps. */
  ids: string[];
  /** Why some were not published, or null. */
  failure: Error | null;
}

/** With more it is the bus that is sick, not an event. */
const failuresMost = 10;

/**
 * Publishes events, up to `atOnce` at a time, but those of one resource one after the other: the next is sent when the
 * bus keeps the one before. One that fails holds up those of its resource; after several failures, or once `mayGoOn` says
 * no, none is begun.
 */
export async function publishInOrder(
  events: readonly CloudEvent[],
  publish: (event: CloudEvent) => Promise<void>,
  { atOnce, mayGoOn }: { atOnce: number; mayGoOn: () => boolean },
): Promise<Published> {
  const done: Published = { ids: [], failure: null };
  let failures = 0;
  const chains = Map.groupBy(events, ({ source, subject }) => `${source} ${subject}`).values();
  const publishChain = async (chain: readonly CloudEvent[]): Promise<void> => {
    for (const event of chain) {
      if (failures >= failuresMost || !mayGoOn()) return;
      await publish(event);
      done.ids.push(event.id);
    }
  };
  const lane = async (): Promise<void> => {
    for (const chain of chains) {
      await publishChain(chain).catch((error: unknown) => {
        failures += 1;
        done.failure ??= error instanceof Error ? error : new Error(String(error));
      });
    }
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
  return done;
}
