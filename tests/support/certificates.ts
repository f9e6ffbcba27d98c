import { generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { serviceNames } from '@stowage/common/rpc/connections';

/** A key and its certificate, both as PEM. */
export interface KeyAndCertificate {
  key: string;
  cert: string;
}

/** What is signed: whom it is for, and by whom. */
interface Wanted {
  subject: string;
  issuer: string;
  extensions: Buffer[];
  validMs?: { from: number; to: number };
}

const dayMs = 24 * 3_600_000;
const algorithm = sequence(Buffer.from('06082a8648ce3d040302', 'hex'));

/** A certificate authority that only a test knows. */
export class Authority {
  readonly #name: string;
  readonly #key: KeyObject;
  /** Its own certificate, as PEM. */
  readonly cert: string;

  constructor(name = 'stowage test authority') {
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    this.#name = name;
    this.#key = privateKey;
    const isAuthority = extension('551d13', sequence(Buffer.from('0101ff', 'hex')), true);
    this.cert = signed({ subject: name, issuer: name, extensions: [isAuthority] }, publicKey, privateKey);
  }

  /** A certificate for DNS names, for a day to come unless told. */
  issue(names: readonly string[], validMs?: Wanted['validMs']): KeyAndCertificate {
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const extensions = [alternativeNames(names.map((name) => der(0x82, Buffer.from(name))))];
    const wanted = { subject: 'stowage test', issuer: this.#name, extensions, ...(validMs ? { validMs } : {}) };
    return { key: pem(privateKey), cert: signed(wanted, publicKey, this.#key) };
  }
}

/** A key and a certificate for 127.0.0.1 that nobody but itself vouches for: right in all else. */
export function selfSigned(): KeyAndCertificate {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const extensions = [alternativeNames([der(0x87, Buffer.from([127, 0, 0, 1]))])];
  const wanted = { subject: 'stowage test', issuer: 'stowage test', extensions };
  return { key: pem(privateKey), cert: signed(wanted, publicKey, privateKey) };
}

/** Writes `ca.crt`, and `<service>.crt` and `.key` of each service, as STOWAGE_TLS_DIR wants them. */
export async function writeServiceCertificates(
  folder: string,
  authority: Authority,
  domain = 'stowage.internal',
): Promise<void> {
  await mkdir(folder, { recursive: true });
  for (const name of serviceNames) {
    const { cert, key } = authority.issue([`${name}.${domain}`]);
    await writeFile(join(folder, `${name}.crt`), cert);
    await writeFile(join(folder, `${name}.key`), key);
  }
  await writeFile(join(folder, 'ca.crt'), authority.cert);
}

function signed({ subject, issuer, extensions, validMs }: Wanted, publicKey: KeyObject, by: KeyObject): string {
  const { from, to } = validMs ?? { from: Date.now() - dayMs, to: Date.now() + dayMs };
  const body = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    algorithm,
    nameOf(issuer),
    sequence(time(from), time(to)),
    nameOf(subject),
    publicKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, sequence(...extensions)),
  );
  const signature = der(0x03, Buffer.concat([Buffer.from([0]), sign('sha256', body, by)]));
  const base64 = sequence(body, algorithm, signature).toString('base64');
  const lines = base64.match(/.{1,64}/g) ?? [];
  return ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n');
}

function pem(key: KeyObject): string {
  return key.export({ type: 'pkcs8', format: 'pem' }).toString();
}

function nameOf(commonName: string): Buffer {
  return sequence(der(0x31, sequence(Buffer.from('0603550403', 'hex'), der(0x0c, Buffer.from(commonName)))));
}

function alternativeNames(names: Buffer[]): Buffer {
  return extension('551d11', sequence(...names));
}

function extension(oid: string, value: Buffer, critical = false): Buffer {
  const parts = [der(0x06, Buffer.from(oid, 'hex')), ...(critical ? [Buffer.from('0101ff', 'hex')] : [])];
  return sequence(...parts, der(0x04, value));
}

function sequence(...parts: Buffer[]): Buffer {
  return der(0x30, Buffer.concat(parts));
}

/** One value of ASN.1 in DER. */
function der(tag: number, content: Buffer): Buffer {
  const { length } = content;
  const size = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

function time(at: number): Buffer {
  const text = new Date(at).toISOString().replace(/[-:T]|\.\d+/g, '');
  return der(0x17, Buffer.from(text.slice(2)));
}
