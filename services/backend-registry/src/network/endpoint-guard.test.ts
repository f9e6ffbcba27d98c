import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { deniedByDefault } from '../settings.ts';
import { EndpointDenied, EndpointGuard, parseNetwork } from './endpoint-guard.ts';
import type { Agents, LookupAll } from './endpoint-guard.ts';

describe('what is denied unless told otherwise', () => {
  const guard = new EndpointGuard(deniedByDefault);

  test.each([
    '169.254.169.254',
    '169.254.0.1',
    '100.100.100.200',
    '168.63.129.16',
    '0.0.0.0',
    '224.0.0.1',
    '255.255.255.255',
    '::',
    'fe80::1',
    'fe80::1%eth0',
    '[fe80::1]',
    'fd00:ec2::254',
    'ff02::1',
    '::ffff:169.254.169.254',
    '::ffff:a9fe:a9fe',
    '0:0:0:0:0:ffff:a9fe:a9fe',
    '::169.254.169.254',
    '64:ff9b::a9fe:a9fe',
    '64:ff9b::169.254.169.254',
    '2002:a9fe:a9fe::1',
    '192.0.2.1',
    '198.18.0.1',
    '198.19.255.255',
    '203.0.113.9',
    '240.0.0.1',
    '2001:db8::1',
    '::ffff:203.0.113.9',
  ])('%s is', (address) => {
    expect(guard.denies(address)).toBe(true);
  });

  test.each(['127.0.0.1', '::1', '10.0.0.1', '192.168.1.1', '172.16.0.1', 'fd00::1', '1.1.1.1', '2606:4700::1111'])(
    '%s is not',
    (address) => {
      expect(guard.denies(address)).toBe(false);
    },
  );
});

describe('a network of the setting', () => {
  test.each(['1.2.3.4/33', '1.2.3.4/', '1.2.3.4/8/8', '::1/129', 'localhost', '', '1.2.3'])('is not %j', (text) => {
    expect(() => parseNetwork(text)).toThrow(/must hold networks/);
  });

  test('denies what it holds', () => {
    const guard = new EndpointGuard(['127.0.0.0/8', '::1']);
    for (const address of ['127.0.0.1', '127.9.9.9', '::1', '::ffff:127.0.0.1'])
      expect(guard.denies(address)).toBe(true);
  });
});

describe('the agents', () => {
  let server: http.Server;
  let port: number;
  let connections = 0;

  beforeAll(async () => {
    server = http.createServer((request, response) => {
      if (request.url === '/elsewhere') response.writeHead(302, { location: 'http://169.254.169.254/' }).end();
      else response.end('reached');
    });
    server.on('connection', () => (connections += 1));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    port = (server.address() as AddressInfo).port;
  });
  afterAll(() => {
    server.closeAllConnections();
    server.close();
  });

  const names: Record<string, string[]> = {
    'good.example': ['127.0.0.1'],
    'bad.example': ['169.254.169.254'],
    'mixed.example': ['127.0.0.1', '169.254.169.254'],
    'mapped.example': ['::ffff:169.254.169.254'],
  };
  const lookup: LookupAll = (hostname, _options, callback) => {
    const found = names[hostname];
    if (!found) return callback(Object.assign(new Error('unknown'), { code: 'ENOTFOUND' }), []);
    return callback(
      null,
      found.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
    );
  };

  function get({ http: agent }: Agents, host: string): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    try {
      const request = http.get({ agent, host, port, path: '/', timeout: 2_000 }, (response) => {
        response.setEncoding('utf8').on('data', resolve).on('error', reject);
      });
      request.on('error', reject).on('timeout', () => request.destroy(new Error('timed out')));
    } catch (error) {
      reject(error);
    }
    return promise;
  }

  test('reach what is allowed', async () => {
    const agents = new EndpointGuard(deniedByDefault, lookup).agents();
    expect(await get(agents, 'good.example')).toBe('reached');
    expect(await get(agents, '127.0.0.1')).toBe('reached');
    agents.http.destroy();
  });

  test.each(['bad.example', 'mixed.example', 'mapped.example', '169.254.169.254', '::ffff:169.254.169.254', 'fe80::1'])(
    'do not connect to %s',
    async (host) => {
      const agents = new EndpointGuard(deniedByDefault, lookup).agents();
      await expect(get(agents, host)).rejects.toThrow(EndpointDenied);
    },
  );

  test.each(['127.0.0.1', 'good.example', '2130706433', '0x7f000001', '0177.0.0.1', '127.1'])(
    'do not connect to %s where loopback is denied, however it is written',
    async (host) => {
      const before = connections;
      const own = host === 'good.example' ? lookup : undefined;
      await expect(get(new EndpointGuard(['127.0.0.0/8'], own).agents(), host)).rejects.toThrow();
      expect(connections).toBe(before);
    },
  );

  test('check at each new connection: a name that changes its mind is refused', async () => {
    let asked = 0;
    const fickle: LookupAll = (_hostname, _options, callback) => {
      asked += 1;
      callback(null, [{ address: asked === 1 ? '127.0.0.1' : '169.254.169.254', family: 4 }]);
    };
    const guard = new EndpointGuard(deniedByDefault, fickle);
    expect(await guard.deniesHost('fickle.example', 1_000)).toBe(false);
    await expect(get(guard.agents(), 'fickle.example')).rejects.toThrow(EndpointDenied);
  });

  test('a name that is never resolved is not waited for', async () => {
    const guard = new EndpointGuard(deniedByDefault, () => undefined);
    expect(await guard.deniesHost('slow.example', 10)).toBe(false);
  });
});
