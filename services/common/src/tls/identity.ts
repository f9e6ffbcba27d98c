import { X509Certificate } from 'node:crypto';
import type { PeerCertificate, SecureContextOptions } from 'node:tls';
import { serviceNames } from '../rpc/connections.ts';
import type { ServiceName } from '../rpc/connections.ts';
import type { Logger } from '../runtime/logger.ts';
import { StartupError } from '../runtime/run-process.ts';
import { checkMaterial, isNamed, readMaterial } from './material.ts';
import type { TlsMaterial } from './material.ts';
import type { TlsFiles } from './settings.ts';

/** Whose process this is, and where it is written. */
export interface TlsOptions {
  service: ServiceName;
  domain: string;
  files: TlsFiles;
  logger: Logger;
  /** How often the files are looked at. A mounted Secret takes about a minute to change, so this adds nothing. */
  pollMs?: number;
}

/** Whom a certificate names, and until when. */
interface Peer {
  service: ServiceName | null;
  validUntil: number;
}

const defaultPollMs = 5_000;
/** Certificates of peers that are remembered: each is met by many calls. */
const rememberedPeers = 256;

/**
 * What this process is to others: its certificate, the authority that vouches for them, and the names that they have.
 * The files are read again when they change. What can't be used leaves what was there in force, and is logged.
 */
export class TlsIdentity {
  readonly #options: TlsOptions;
  readonly #timer: NodeJS.Timeout;
  readonly #listeners = new Set<() => void>();
  readonly #peers = new Map<string, Peer>();
  #material: TlsMaterial;
  #complaint: string | null = null;

  /** Throws StartupError where the files can't be used. */
  constructor(options: TlsOptions) {
    this.#options = options;
    try {
      this.#material = this.#load();
    } catch (error) {
      throw new StartupError(`STOWAGE_TLS_CERT, _KEY and _CA can't be used: ${messageOf(error)}.`);
    }
    this.#timer = setInterval(() => this.#look(), options.pollMs ?? defaultPollMs).unref();
  }

  /** For either end of a connection that is opened now. */
  get context(): SecureContextOptions {
    return { ...this.#material, minVersion: 'TLSv1.3' };
  }

  /** Calls `listener` after each change of `context`. */
  onChange(listener: () => void): void {
    this.#listeners.add(listener);
  }

  /** The name that a service's certificate must have. */
  nameOf(service: ServiceName): string {
    return `${service}.${this.#options.domain}`;
  }

  /** For a client: what is wrong with the certificate of whoever answers as `service`, whatever its address. */
  wrongServer(service: ServiceName, certificate: PeerCertificate): Error | undefined {
    if (this.serviceOf(certificate) === service) return undefined;
    return new Error(`The certificate is not for ${this.nameOf(service)}.`);
  }

  /**
   * The one service that a certificate names, which the authority was found to vouch for; null for none, and once the
   * certificate has expired: a connection may outlive it.
   */
  serviceOf(certificate: PeerCertificate): ServiceName | null {
    const { fingerprint256: fingerprint } = certificate;
    if (fingerprint === undefined) return null;
    const peer = this.#peers.get(fingerprint) ?? this.#remember(fingerprint, certificate);
    return Date.now() < peer.validUntil ? peer.service : null;
  }

  #remember(fingerprint: string, certificate: PeerCertificate): Peer {
    if (this.#peers.size >= rememberedPeers) this.#peers.clear();
    const parsed = new X509Certificate(certificate.raw);
    const named = serviceNames.filter((service) => isNamed(parsed, this.nameOf(service)));
    const peer = { service: named.length === 1 ? (named[0] ?? null) : null, validUntil: parsed.validToDate.getTime() };
    this.#peers.set(fingerprint, peer);
    return peer;
  }

  /** Looks at the files no more. */
  close(): void {
    clearInterval(this.#timer);
    this.#listeners.clear();
  }

  #load(): TlsMaterial {
    const material = readMaterial(this.#options.files);
    checkMaterial(material, this.nameOf(this.#options.service));
    return material;
  }

  #look(): void {
    const { logger } = this.#options;
    try {
      const found = this.#load();
      this.#complaint = null;
      if (isSame(found, this.#material)) return;
      this.#material = found;
    } catch (error) {
      const reason = messageOf(error);
      // Told once, not at each look.
      if (reason !== this.#complaint) logger.error({ reason }, 'The TLS files can not be used; what was there stays.');
      this.#complaint = reason;
      return;
    }
    logger.info('A new TLS certificate is in use.');
    for (const listener of this.#listeners) listener();
  }
}

function isSame(one: TlsMaterial, other: TlsMaterial): boolean {
  return one.cert.equals(other.cert) && one.key.equals(other.key) && one.ca.equals(other.ca);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
