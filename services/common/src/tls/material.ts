import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';
import type { TlsFiles } from './settings.ts';

/** What a process shows of itself and judges others by, as PEM. */
export interface TlsMaterial {
  readonly cert: Buffer;
  readonly key: Buffer;
  readonly ca: Buffer;
}

/** The files as they are now. Throws an Error for a person where one can't be read. */
export function readMaterial(files: TlsFiles): TlsMaterial {
  return { cert: read(files.cert), key: read(files.key), ca: read(files.ca) };
}

/** Throws an Error for a person, with no path of a key's content in it, unless `name` could be served with it. */
export function checkMaterial({ cert, key, ca }: TlsMaterial, name: string): void {
  const own = told('the certificate', () => new X509Certificate(cert));
  const secret = told('the key', () => createPrivateKey(key));
  if (!own.checkPrivateKey(secret)) throw new Error('the key does not belong to the certificate');
  if (!isNamed(own, name)) throw new Error(`the certificate is not for ${name}`);
  told('the certificates of the authority', () => createSecureContext({ cert, key, ca }));
  if (!/-----BEGIN CERTIFICATE-----/.test(ca.toString('latin1'))) {
    throw new Error('the certificates of the authority hold none');
  }
}

/** Whether a certificate names exactly `name`: no wildcard, and no subject in place of a name. */
export function isNamed(certificate: X509Certificate, name: string): boolean {
  return certificate.checkHost(name, { subject: 'never', wildcards: false }) !== undefined;
}

function read(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch {
    throw new Error(`${path} can't be read`);
  }
}

function told<T>(what: string, parse: () => T): T {
  try {
    return parse();
  } catch {
    throw new Error(`${what} can't be understood: PEM is wanted`);
  }
}
