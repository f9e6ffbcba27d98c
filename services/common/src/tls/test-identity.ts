import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Authority } from '@stowage/tests/support/certificates';
import type { KeyAndCertificate } from '@stowage/tests/support/certificates';
import type { ServiceName } from '../rpc/connections.ts';
import { createLogger } from '../runtime/logger.ts';
import type { Logger } from '../runtime/logger.ts';
import { TlsIdentity } from './identity.ts';
import type { TlsFiles } from './settings.ts';

export const testDomain = 'stowage.internal';

/** Writes what a process is given; gives where. */
export function writeTlsFiles(own: KeyAndCertificate, ca: string, folder = newFolder()): TlsFiles {
  const files = { cert: join(folder, 'tls.crt'), key: join(folder, 'tls.key'), ca: join(folder, 'ca.crt') };
  writeFileSync(files.cert, own.cert);
  writeFileSync(files.key, own.key);
  writeFileSync(files.ca, ca);
  return files;
}

/** An identity of `service` whose certificate is by `authority`, and which trusts `trusted`. */
export function testIdentity(service: ServiceName, authority: Authority, trusted = authority): TlsIdentity {
  const files = writeTlsFiles(authority.issue([`${service}.${testDomain}`]), trusted.cert);
  return identityOf(service, files, createLogger('test', 'silent'));
}

export function identityOf(service: ServiceName, files: TlsFiles, logger: Logger, pollMs?: number): TlsIdentity {
  return new TlsIdentity({ service, domain: testDomain, files, logger, ...(pollMs === undefined ? {} : { pollMs }) });
}

function newFolder(): string {
  return mkdtempSync(join(tmpdir(), 'stowage-tls-'));
}
