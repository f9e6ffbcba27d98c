/** How to be let in by a key: with the text of a creds file (a JWT and its seed), or with an nkey's seed alone. */
export interface NatsCredentials {
  kind: 'creds' | 'nkey';
  text: string;
}

/** A creds file as `nsc` writes it, or the seed of a user's nkey. Throws without telling the text. */
export function natsCredentials(text: string): NatsCredentials {
  if (/-BEGIN NATS USER JWT-[^]*-BEGIN USER NKEY SEED-/.test(text)) return { kind: 'creds', text };
  if (/^SU[A-Z2-7]{56}$/.test(text)) return { kind: 'nkey', text };
  throw new Error('must hold a creds file of NATS or the seed of a user’s nkey (SU…)');
}

/** Certificates in PEM. */
export function pemCertificates(text: string): string {
  if (!text.includes('-----BEGIN CERTIFICATE-----')) throw new Error('must hold certificates in PEM');
  return text;
}
