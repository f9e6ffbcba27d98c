import { readKept, writeKept } from '@stowage/common/bytes/operations';
import type { Downloader, Uploader } from '@stowage/common/bytes/operations';
import type { Connections } from '@stowage/common/rpc/connections';
import type { Client } from '@stowage/common/rpc/contract';
import { KeptService } from '@stowage/proto/stowage/backend_registry/v1/kept';

/** How kept documents get to backends and back. */
export interface KeptStorage {
  kept: Client<typeof KeptService>;
  write: Uploader<typeof writeKept.input, typeof writeKept.output>;
  read: Downloader<typeof readKept.input>;
}

export function keptStorage(connections: Connections): KeptStorage {
  return {
    kept: connections.client(KeptService),
    write: connections.uploader(writeKept),
    read: connections.downloader(readKept),
  };
}
