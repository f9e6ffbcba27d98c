import type { ServiceName } from '../rpc/connections.ts';
import type { TlsIdentity } from './identity.ts';

/** Both ends of a connection: what this process shows, and which service the other one has to be. */
export interface ChannelIdentity {
  tls: TlsIdentity;
  service: ServiceName;
}
