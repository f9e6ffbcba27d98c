import { describe, expect, test } from '@jest/globals';
import { readSettings } from '@stowage/common/runtime/settings';
import type { Environment } from '@stowage/common/runtime/settings';
import { natsAccess, placementSettings } from './settings.ts';

const seed = `SU${'A'.repeat(56)}`;
const creds = `-----BEGIN NATS USER JWT-----\ncanary\n------END NATS USER JWT------\n-----BEGIN USER NKEY SEED-----\n${seed}\n------`;
const ca = '-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----';

function access(environment: Environment): unknown {
  return natsAccess(readSettings({ own: placementSettings }, environment).own);
}

describe('how NATS is reached', () => {
  test('is not said by default, else by address, credentials and certificates', () => {
    expect(access({})).toBeNull();
    expect(access({ STOWAGE_NATS_URL: 'nats://a' })).not.toHaveProperty('credentials');
    expect(access({ STOWAGE_NATS_URL: 'nats://a', STOWAGE_NATS_CREDS: seed, STOWAGE_NATS_CA: ca })).toMatchObject({
      credentials: { kind: 'nkey', text: seed },
      ca,
    });
    expect(access({ STOWAGE_NATS_URL: 'nats://a', STOWAGE_NATS_CREDS: creds })).toMatchObject({
      credentials: { kind: 'creds', text: creds },
    });
  });

  test.each([
    { STOWAGE_NATS_CREDS: seed },
    { STOWAGE_NATS_CA: ca },
    { STOWAGE_NATS_URL: 'nats://canary:canary@a', STOWAGE_NATS_CREDS: seed },
    { STOWAGE_NATS_URL: 'nats://canary@a', STOWAGE_NATS_CREDS: creds },
    { STOWAGE_NATS_URL: 'nats://a', STOWAGE_NATS_CREDS: 'canary' },
    { STOWAGE_NATS_URL: 'nats://a', STOWAGE_NATS_CA: 'canary' },
  ])('is refused where it contradicts itself or makes no sense, without telling secrets: %j', (environment) => {
    expect(() => access(environment)).toThrow(/^(?!.*(canary|SUA)).*STOWAGE_NATS_/s);
  });
});
