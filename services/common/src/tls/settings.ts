import { StartupError } from '../runtime/run-process.ts';
import { setting } from '../runtime/settings.ts';
import type { Values } from '../runtime/settings.ts';

/** How the processes know each other. */
export const tlsSettings = {
  tlsCert: setting<string | null>(
    'STOWAGE_TLS_CERT',
    'The file with this process’s certificate, in PEM; read again when it changes.',
    String,
    { absent: null },
  ),
  tlsKey: setting<string | null>('STOWAGE_TLS_KEY', 'The file with the key of that certificate.', String, {
    absent: null,
  }),
  tlsCa: setting<string | null>(
    'STOWAGE_TLS_CA',
    'The file with the certificates that vouch for the other services.',
    String,
    { absent: null },
  ),
  tlsDomain: setting('STOWAGE_TLS_DOMAIN', 'Certificates between services name `<service>.<this>`.', domain, {
    fallback: 'stowage.internal',
  }),
};

/** Paths of PEM files. */
export interface TlsFiles {
  cert: string;
  key: string;
  ca: string;
}

/** The files of mutual TLS; null where it is off. Throws StartupError where only some are set. */
export function tlsFilesOf({ tlsCert: cert, tlsKey: key, tlsCa: ca }: Values<typeof tlsSettings>): TlsFiles | null {
  if (cert === null && key === null && ca === null) return null;
  if (cert === null || key === null || ca === null) {
    throw new StartupError(
      'STOWAGE_TLS_CERT, STOWAGE_TLS_KEY and STOWAGE_TLS_CA belong together: set all three or none.',
    );
  }
  return { cert, key, ca };
}

function domain(text: string): string {
  if (!/^(?=.{1,200}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/.test(text)) {
    throw new Error(`must be a domain in lower case such as stowage.internal, not "${text}"`);
  }
  return text;
}
