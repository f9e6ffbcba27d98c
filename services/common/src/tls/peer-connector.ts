import { buildConnector } from 'undici';
import type { ChannelIdentity } from './channel-identity.ts';

/** How long a connection may take to be made, handshake and all. */
export const connectTimeoutMs = 3_000;

/** Opens the connections of an HTTP client to one service, each by the files as they are at that moment. */
export function peerConnector({ tls, service }: ChannelIdentity): buildConnector.connector {
  const make = (): buildConnector.connector =>
    buildConnector({
      ...tls.context,
      timeout: connectTimeoutMs,
      servername: tls.nameOf(service),
      checkServerIdentity: (_host, certificate) => tls.wrongServer(service, certificate),
      // A resumed session would not look at certificates again.
      maxCachedSessions: 0,
      allowH2: false,
    });
  let connector = make();
  tls.onChange(() => {
    connector = make();
  });
  return (options, callback) => connector({ ...options, servername: tls.nameOf(service) }, callback);
}
