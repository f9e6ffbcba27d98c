import type { JsonObject } from '@bufbuild/protobuf';
import type { BackendType } from '@stowage/common/backend-config';
import type { Generated, Selectable } from 'kysely';

/** The tables that backend-registry owns, and the views of its neighbours'. */
export interface Tables {
  'registry.backends': BackendTable;
  'registry.backend_secrets': SecretTable;
  'registry.secret_keys': SecretKeyTable;
  'catalog.backend_usage': UsageView;
  'upload.backend_uploads': UploadsView;
  'placement.backend_policies': PoliciesView;
  'upload.known_uploads': { id: string };
}

interface BackendTable {
  id: string;
  name: string;
  type: BackendType;
  enabled: Generated<boolean>;
  is_default: Generated<boolean>;
  /** Public values only. */
  config: JsonObject;
  /** Changes with every secret, so that stores are opened anew. A bigint, which pg gives as text. */
  secrets_version: Generated<string>;
  /** Its place was found to bear its marker once: from then on the marker is never written again. */
  marked: Generated<boolean>;
  health_status: Generated<'unknown' | 'healthy' | 'unhealthy'>;
  health_checked_at: Generated<Date | null>;
  health_latency_ms: Generated<number | null>;
  health_detail: Generated<string | null>;
  /** The step of the last check that failed; null after one that did not. */
  health_step: Generated<string | null>;
  /** Failed checks in a row. */
  health_failures: Generated<number>;
  /** Successful checks in a row. */
  health_successes: Generated<number>;
  /** A bigint, which pg gives as text. */
  version: Generated<string>;
  created_at: Generated<Date>;
  updated_at: Generated<Date>;
}

/** Sealed, or a key of a Kubernetes Secret: one of both is null. */
interface SecretTable {
  backend_id: string;
  field: string;
  key_id: string | null;
  nonce: Buffer | null;
  sealed: Buffer | null;
  ref_name: string | null;
  ref_key: string | null;
  sealed_at: Generated<Date>;
}

/** A word that was sealed under each key: tells a key from another one of the same id. */
export interface SecretKeyTable {
  id: string;
  nonce: Buffer;
  canary: Buffer;
  created_at: Generated<Date>;
}

interface UsageView {
  backend_id: string;
  replicas: string;
  bytes: string;
}

interface UploadsView {
  backend_id: string;
  uploads: string;
}

interface PoliciesView {
  backend_id: string;
  file_class: string;
}

export type BackendRow = Selectable<BackendTable>;
