import type { Database } from '@stowage/common/database/database';
import { endpoint } from '@stowage/common/rpc/contract';
import type { Endpoint } from '@stowage/common/rpc/contract';
import { ExportService } from '@stowage/proto/stowage/export/v1/export';
import { checkIntegrity } from './integrity/check-integrity.ts';

/** Which function answers which call. */
export function exportEndpoints({ bulk }: Pick<Database, 'bulk'>): Endpoint[] {
  return [
    endpoint(ExportService, {
      checkIntegrity: (_request, { signal }) => checkIntegrity(bulk, signal),
    }),
  ];
}
