import { describe, expect, test } from '@jest/globals';
import { natsAddress } from './nats-address.ts';

const nobody = { user: null, password: null, token: null, tls: false };

describe('an address of NATS', () => {
  test.each([
    ['nats://localhost', { ...nobody, servers: ['localhost:4222'] }],
    ['nats://ann:p%40ss@a:1', { ...nobody, servers: ['a:1'], user: 'ann', password: 'p@ss' }],
    ['nats://t0ken@a:1', { ...nobody, servers: ['a:1'], token: 't0ken' }],
    ['tls://a:1, tls://[::1]:2', { ...nobody, servers: ['a:1', '[::1]:2'], tls: true }],
    ['nats://ann:pass@a,nats://b:2', { ...nobody, servers: ['a:4222', 'b:2'], user: 'ann', password: 'pass' }],
  ])('%s is understood', (text, address) => {
    expect(natsAddress(text)).toEqual(address);
  });

  test.each([
    'canary',
    'http://canary@a',
    'nats://',
    'nats://x:canary%zz@a',
    'nats://canary@a/path',
    'nats://a,canary',
    '',
  ])('%s is refused without telling it', (text) => {
    expect(() => natsAddress(text)).toThrow(/^must be like nats:/);
  });
});
