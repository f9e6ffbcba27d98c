/** A process that does nothing but relay: `test-relay.ts <database url> <nats url> <lease in ms>`. */
import { openDatabase, queryBuilder } from '../database/database.ts';
import { createLogger } from '../runtime/logger.ts';
import { natsAddress } from './nats-address.ts';
import { NatsBus } from './nats-bus.ts';
import { OutboxRelay } from './outbox-relay.ts';

const [databaseUrl = '', natsUrl = '', leaseMs = ''] = process.argv.slice(2);
const logger = createLogger('relay', 'info');
const database = openDatabase({ url: databaseUrl, service: 'placement', connections: 2, logger });
const bus = new NatsBus(natsAddress(natsUrl), logger);
new OutboxRelay({ db: queryBuilder(database), bus, logger, leaseMs: Number(leaseMs) }).start();
