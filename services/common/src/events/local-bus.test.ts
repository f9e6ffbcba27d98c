import { busConformance } from './conformance.ts';
import { LocalBus } from './local-bus.ts';

busConformance('in one process', async () => {
  const bus = new LocalBus();
  return { bus, prefix: 'test', close: () => bus.close() };
});
