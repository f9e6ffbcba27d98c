import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import { describeWith, natsServer } from '@stowage/tests/support/real-servers';
import { createLogger } from '../runtime/logger.ts';
import { busConformance } from './conformance.ts';
import type { BusUnderTest } from './conformance.ts';
import { natsAddress } from './nats-address.ts';
import { NatsBus } from './nats-bus.ts';
import { defaultStream } from './stream.ts';

describeWith('NATS', natsServer(), ({ url }) => {
  busConformance('NATS JetStream', () => openTestBus(url));
});

/** On a stream of its own, that is removed. */
async function openTestBus(url: string): Promise<BusUnderTest> {
  const prefix = `test-${process.pid}-${Date.now()}`;
  const address = natsAddress(url);
  const stream = { ...defaultStream, name: prefix, subjects: [`${prefix}.>`] };
  const bus = new NatsBus(address, createLogger('test', 'silent'), stream);
  const close = async (): Promise<void> => {
    await bus.close();
    const { servers, user, password } = address;
    const connection = await connect({ servers, ...(user && password ? { user, pass: password } : {}) });
    await (await jetstreamManager(connection)).streams.delete(prefix);
    await connection.close();
  };
  return { bus, prefix, close };
}
