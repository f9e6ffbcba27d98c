import { afterEach, describe, expect, test } from '@jest/globals';
import { rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { X509Certificate } from 'node:crypto';
import { Authority } from '@stowage/tests/support/certificates';
import type { KeyAndCertificate } from '@stowage/tests/support/certificates';
import { until } from '@stowage/tests/support/client';
import { createLogger } from '../runtime/logger.ts';
import { readSettings } from '../runtime/settings.ts';
import type { TlsIdentity } from './identity.ts';
import { tlsFilesOf, tlsSettings } from './settings.ts';
import type { TlsFiles } from './settings.ts';
import { identityOf, writeTlsFiles } from './test-identity.ts';

const authority = new Authority();
const logger = createLogger('test', 'silent');
const folders: string[] = [];
const identities: TlsIdentity[] = [];

afterEach(() => {
  for (const identity of identities.splice(0)) identity.close();
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});

function filesWith(own: KeyAndCertificate, ca = authority.cert): TlsFiles {
  const files = writeTlsFiles(own, ca);
  folders.push(dirname(files.cert));
  return files;
}

describe('the settings of mutual TLS', () => {
  const read = (environment: Record<string, string>): TlsFiles | null =>
    tlsFilesOf(readSettings({ tls: tlsSettings }, environment).tls);

  test('are all there, or none', () => {
    expect(read({})).toBeNull();
    const all = { STOWAGE_TLS_CERT: '/a', STOWAGE_TLS_KEY: '/b', STOWAGE_TLS_CA: '/c' };
    expect(read(all)).toEqual({ cert: '/a', key: '/b', ca: '/c' });
    for (const name of Object.keys(all)) {
      expect(() => read({ ...all, [name]: '' })).toThrow('STOWAGE_TLS_CERT, STOWAGE_TLS_KEY and STOWAGE_TLS_CA belong');
    }
  });

  test.each(['Not Lower', '*.example.com', '.a', 'a..b', 'a.'])('refuse %j as a domain', (domain) => {
    expect(() => read({ STOWAGE_TLS_DOMAIN: domain })).toThrow('STOWAGE_TLS_DOMAIN must be a domain');
  });
});

describe('files that can not be used', () => {
  const right = authority.issue(['catalog.stowage.internal']);
  const start = (files: TlsFiles): TlsIdentity => identityOf('catalog', files, logger);

  test.each<[string, KeyAndCertificate, string, string]>([
    ['a certificate for another service', authority.issue(['upload.stowage.internal']), authority.cert, 'is not for'],
    ['one for every service', authority.issue(['*.stowage.internal']), authority.cert, 'is not for'],
    ['another key', { ...right, key: authority.issue(['x']).key }, authority.cert, 'does not belong'],
    ['no key', { ...right, key: 'secret nonsense' }, authority.cert, "the key can't be understood"],
    ['no certificate', { ...right, cert: 'nonsense' }, authority.cert, "the certificate can't be understood"],
    ['no authority', right, 'nonsense', 'authority'],
  ])('stop the start, such as %s, with a reason and no content', (_what, own, ca, reason) => {
    const files = filesWith(own, ca);
    expect(() => start(files)).toThrow(reason);
    expect(() => start(files)).not.toThrow('nonsense');
  });

  test('stop the start where one is missing', () => {
    const files = filesWith(right);
    rmSync(files.key);
    expect(() => start(files)).toThrow(`${files.key} can't be read`);
  });
});

test('a certificate that names two services is nobody’s', () => {
  const files = filesWith(authority.issue(['catalog.stowage.internal']));
  const identity = identityOf('catalog', files, logger);
  identities.push(identity);
  const seen = (names: string[]): ReturnType<TlsIdentity['serviceOf']> =>
    identity.serviceOf(new X509Certificate(authority.issue(names).cert).toLegacyObject());
  expect(seen(['upload.stowage.internal'])).toBe('upload');
  expect(seen(['anything.else', 'upload.stowage.internal'])).toBe('upload');
  expect(seen(['upload.stowage.internal', 'gateway.stowage.internal'])).toBeNull();
  expect(seen(['upload.other.internal'])).toBeNull();
  expect(seen(['x, DNS:gateway.stowage.internal'])).toBeNull();
});

test('a certificate that expires while a connection is open is nobody’s from then on', async () => {
  const identity = identityOf('catalog', filesWith(authority.issue(['catalog.stowage.internal'])), logger);
  identities.push(identity);
  // Times in a certificate are whole seconds.
  const validMs = { from: Date.now() - 60_000, to: Date.now() + 2_000 };
  const peer = new X509Certificate(authority.issue(['upload.stowage.internal'], validMs).cert).toLegacyObject();
  expect(identity.serviceOf(peer)).toBe('upload');
  await until(async () => identity.serviceOf(peer) === null);
});

test('new files come into use, and broken ones leave what was there', async () => {
  const complaints: unknown[] = [];
  const listening = Object.assign(Object.create(logger), {
    error: (fields: unknown) => complaints.push(fields),
  });
  const first = authority.issue(['catalog.stowage.internal']);
  const files = filesWith(first);
  const identity = identityOf('catalog', files, listening, 5);
  identities.push(identity);
  const served = (): string => String(identity.context.cert);
  let changes = 0;
  identity.onChange(() => (changes += 1));

  writeFileSync(files.cert, 'half a certi');
  await until(async () => complaints.length > 0);
  expect(served()).toBe(first.cert);
  expect(complaints).toEqual([{ reason: "the certificate can't be understood: PEM is wanted" }]);

  const second = authority.issue(['catalog.stowage.internal']);
  writeTlsFiles(second, authority.cert, dirname(files.cert));
  await until(async () => served() === second.cert);
  expect(String(identity.context.key)).toBe(second.key);
  expect(changes).toBe(1);
});
