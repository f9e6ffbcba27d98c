import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import { natsUrl, withNats } from '@stowage/tests/support/nats-server';
import { createLogger } from '../runtime/logger.ts';
import { busConformance } from './conformance.ts';
import type { BusUnderTest } from './conformance.ts';
import { natsAddress } from './nats-address.ts';
import { NatsBus } from './nats-bus.ts';
import { defaultStream } from './stream.ts';

withNats('an event bus on NATS', () => {
  busConformance('NATS JetStream', openTestBus);
});

/** On a stream of its own, that is removed. */
async function openTestBus(): Promise<BusUnderTest> {
  const prefix = `test-${process.pid}-${Date.now()}`;
  const address = natsAddress(natsUrl());
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
