import type { JsonObject } from '@bufbuild/protobuf';
import type { Generated, Selectable } from 'kysely';

/** The tables that backend-registry owns. */
export interface Tables {
  'registry.backends': BackendTable;
}

interface BackendTable {
  id: string;
  name: string;
  type: 'local_directory' | 's3' | 'webdav';
  enabled: Generated<boolean>;
  is_default: Generated<boolean>;
  config: JsonObject;
  health_status: Generated<'unknown' | 'healthy' | 'unhealthy'>;
  /** Null until the backend was found right, or wrong, for the first time. */
  health_checked_at: Generated<Date | null>;
  health_latency_ms: Generated<number | null>;
  health_detail: Generated<string | null>;
  /** A bigint, which pg gives as text. */
  version: Generated<string>;
  created_at: Generated<Date>;
  updated_at: Generated<Date>;
}

export type BackendRow = Selectable<BackendTable>;
