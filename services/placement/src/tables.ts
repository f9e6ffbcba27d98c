import type { Generated } from 'kysely';

/** The tables that placement owns. */
export interface Tables {
  'placement.policies': {
    file_class: string;
    replicas: number;
    sync_replicas: Generated<number>;
    version: Generated<string>;
    updated_at: Generated<Date>;
  };
  'placement.policy_backends': { file_class: string; position: number; backend_id: string };
}
