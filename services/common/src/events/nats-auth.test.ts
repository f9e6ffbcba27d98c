import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { connect, nkeys } from '@nats-io/transport-node';
import { makeOperator } from '@stowage/tests/support/nats-keys';
import type { NatsPermissions } from '@stowage/tests/support/nats-keys';
import { describeWith, natsServer } from '@stowage/tests/support/real-servers';
import { startServer } from '@stowage/tests/support/share-servers';
import type { OwnServer } from '@stowage/tests/support/share-servers';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLogger } from '../runtime/logger.ts';
import { testEvent } from './conformance.ts';
import { natsAddress } from './nats-address.ts';
import type { NatsAddress } from './nats-address.ts';
import { NatsBus } from './nats-bus.ts';
import { natsCredentials } from './nats-credentials.ts';
import { defaultStream } from './stream.ts';

/** The permissions that the README tells operators to give. */
const wanted = permissionsInReadme();
const folder = mkdtempSync(join(tmpdir(), 'stowage-nats-auth-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function permissionsInReadme(): NatsPermissions {
  const readme = readFileSync(join(import.meta.dirname, '../../../../README.md'), 'utf8');
  const list = (name: string): string[] => {
    const text = new RegExp(`${name}: \\{ allow: \\[([^\\]]*)\\]`).exec(readme)?.[1] ?? '';
    return [...text.matchAll(/"([^"]+)"/g)].map((match) => match[1] ?? '');
  };
  return { publish: list('publish'), subscribe: list('subscribe') };
}

function start(config: string): Promise<OwnServer> {
  const file = join(folder, 'nats.conf');
  writeFileSync(file, config);
  return startServer('NATS', {
    arguments: (data, port) => [
      ...['--config', file, '--addr', '127.0.0.1', '--port', String(port)],
      ...['--jetstream', '--store_dir', join(data, 'data')],
    ],
    settings: (port) => ({ STOWAGE_TEST_NATS_URL: `nats://127.0.0.1:${port}` }),
  });
}

function openBus(address: NatsAddress, lines: string[] = []): NatsBus {
  const logger = createLogger('test', 'trace', { write: (line) => void lines.push(line) });
  return new NatsBus(address, logger);
}

/** All that the relay asks of a bus, on a server that keeps nothing yet: it makes the stream, and brings it up to date. */
async function relays(address: NatsAddress): Promise<void> {
  const logger = createLogger('test', 'silent');
  const before = new NatsBus(address, logger, { ...defaultStream, duplicateWindowMs: 60_000 });
  const bus = new NatsBus(address, logger);
  try {
    expect(await before.recentIds(10)).toEqual(new Set());
    expect(await bus.recentIds(10)).toEqual(new Set());
    const [job, file] = [testEvent('stowage.jobs.scrub.failed', 'a'), testEvent('stowage.files.moved', 'b')];
    await bus.publish(job);
    await bus.publish(file);
    await bus.publish(job);
    expect(await bus.recentIds(10)).toEqual(new Set([job.id, file.id]));
    await bus.check();
  } finally {
    await before.close();
    await bus.close();
  }
}

async function startAnew(server: OwnServer): Promise<void> {
  await server.kill();
  await server.wipe();
  await server.restart();
}

const quoted = (words: readonly string[]): string => words.map((word) => `"${word}"`).join(', ');

describe('the permissions in the README', () => {
  test('are there, and name what the stream carries', () => {
    expect(wanted.publish).toContain('stowage.>');
    expect(wanted.subscribe).toEqual(['_INBOX.>']);
  });
});

describeWith('NATS', natsServer(), () => {
  describe.each(['creds', 'nkey'] as const)(
    'a bus that is let in by %s, with the permissions in the README',
    (kind) => {
      let server: OwnServer;
      let address: NatsAddress;
      let limited: (permissions: NatsPermissions) => NatsAddress;

      beforeAll(async () => {
        if (kind === 'creds') {
          const operator = makeOperator();
          server = await start(operator.config);
          limited = (permissions) => ({
            ...natsAddress(server.url),
            credentials: natsCredentials(operator.creds(permissions)),
          });
        } else {
          const [user, other] = [nkeys.createUser(), nkeys.createUser()];
          const seed = (pair: typeof user): string => new TextDecoder().decode(pair.getSeed());
          const allow = ({ publish, subscribe }: NatsPermissions): string =>
            `permissions: { publish: { allow: [${quoted(publish)}] }, subscribe: { allow: [${quoted(subscribe)}] } }`;
          server = await start(`authorization { users: [
          { nkey: ${user.getPublicKey()}, ${allow(wanted)} },
          { nkey: ${other.getPublicKey()}, ${allow({ ...wanted, publish: without('stowage.>') })} }
        ] }`);
          limited = ({ publish }) => ({
            ...natsAddress(server.url),
            credentials: natsCredentials(seed(publish.includes('stowage.>') ? user : other)),
          });
        }
        address = limited(wanted);
      });
      afterAll(() => server.close());

      test('makes the stream, publishes, and tells what is there', async () => {
        await startAnew(server);
        await relays(address);
      });

      test('may do nothing else', async () => {
        const { servers } = address;
        const { credentials } = address;
        if (!credentials) throw new Error('it has credentials');
        const bus = openBus(address);
        await bus.recentIds(1);
        const other = { ...testEvent('elsewhere.moved', 'a') };
        await expect(bus.publish(other)).rejects.toThrow('NATS did not confirm');
        await bus.close();
        await expect(connect({ servers, reconnect: false })).rejects.toThrow(/[Aa]uthorization/);
      });

      test('that lacks one is told so, and the key is in no log', async () => {
        const lines: string[] = [];
        const lacking = limited({ ...wanted, publish: without('stowage.>') });
        const bus = openBus(lacking, lines);
        await bus.recentIds(1);
        await expect(bus.publish(testEvent('stowage.files.moved', 'b'))).rejects.toThrow('NATS did not confirm');
        await bus.close();
        const secret = /SU[A-Z2-7]{56}/.exec(lacking.credentials?.text ?? '')?.[0] ?? '';
        expect(secret).toHaveLength(58);
        expect(lines.join()).not.toContain(secret);
      });
    },
  );

  describe('of the permissions in the README', () => {
    const operator = makeOperator();
    let server: OwnServer;

    beforeAll(async () => {
      server = await start(operator.config);
    });
    afterAll(() => server.close());

    test.each(wanted.publish)('%s is needed', async (subject) => {
      await startAnew(server);
      const credentials = natsCredentials(operator.creds({ ...wanted, publish: without(subject) }));
      await expect(relays({ ...natsAddress(server.url), credentials })).rejects.toThrow();
    });
  });

  describe('a bus over TLS', () => {
    let server: OwnServer;
    let ca: string;
    let strange: string;
    let servers: string[];

    beforeAll(async () => {
      const [own, other] = [certificate('own'), certificate('other')];
      ca = readFileSync(own.cert, 'utf8');
      strange = readFileSync(other.cert, 'utf8');
      server = await start(`tls { cert_file: "${own.cert}", key_file: "${own.key}" }`);
      servers = [`localhost:${new URL(server.url).port}`];
    });
    afterAll(() => server.close());

    test('works with the certificates that it was given', async () => {
      await relays({ ...natsAddress(server.url), ca, servers });
    });

    test('refuses a server that none of them vouches for', async () => {
      for (const address of [{ ...natsAddress(server.url), ca: strange }, natsAddress(server.url)]) {
        const bus = openBus({ ...address, servers });
        await expect(bus.check()).rejects.toThrow('NATS can not be reached');
        await bus.close();
      }
    });

    test('never speaks in the clear where certificates were given', async () => {
      const plain = await startServer('NATS');
      const bus = openBus({ ...natsAddress(plain.url), ca });
      await expect(bus.check()).rejects.toThrow('NATS can not be reached');
      await bus.close();
      await plain.close();
    });
  });
});

function without(subject: string): string[] {
  return wanted.publish.filter((word) => word !== subject);
}

/** A certificate for localhost that vouches for itself. */
function certificate(name: string): { cert: string; key: string } {
  const [cert, key] = [join(folder, `${name}.pem`), join(folder, `${name}.key`)];
  const subject = ['-subj', `/CN=${name}`, '-addext', 'subjectAltName=DNS:localhost'];
  const options = ['-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  execFileSync('openssl', ['req', ...options, ...subject, '-keyout', key, '-out', cert], { stdio: 'ignore' });
  return { cert, key };
}
