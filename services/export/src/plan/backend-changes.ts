import type { JsonObject, MessageInitShape } from '@bufbuild/protobuf';
import type { BackendJudgement, DocumentBackend } from '@stowage/proto/stowage/backend_registry/v1/backend';
import type { BackendChangeSchema } from '@stowage/proto/stowage/export/v1/export';
import type { ClientBase } from 'pg';
import { stagedTable } from '../document/staged-tables.ts';
import { actionOf, joined } from './compared-columns.ts';

/** As the message Finding. */
export interface Finding {
  pointer: string;
  code: string;
  detail: string;
}

/** A backend of the document, of the live state, or of both. */
export interface ChangedBackend {
  id: string;
  name: string;
  action: 'create' | 'update' | 'remove' | 'unchanged';
  /** As the document has it, and where; null for one that the import removes. */
  wanted: { position: number; enabled: boolean; backend: DocumentBackendInit } | null;
}

type DocumentBackendInit = Pick<DocumentBackend, 'id' | 'type' | 'isDefault' | 'secretFields'> & { config: JsonObject };

/** What the plan says of all backends together. */
export interface BackendPlan {
  changes: MessageInitShape<typeof BackendChangeSchema>[];
  /** Those whose secrets may stay. */
  knownIds: string[];
  warnings: Finding[];
  blockers: Finding[];
}

/** All backends of a staged document and of the live state, by id. */
export async function changedBackends(client: ClientBase, number: number): Promise<ChangedBackend[]> {
  const { rows } = await client.query<BackendRow>(
    `select coalesce(s.id, l.id) as id, coalesce(s.name, l.name) as name, ${actionOf('backends')} as action,
       s.position, s.enabled, s.type, s.config, s.is_default, s.secret_fields
     from ${joined('backends', stagedTable(number, 'backends'))} order by 1`,
  );
  return rows.map(({ id, name, action, ...row }) => ({
    id,
    name,
    action,
    wanted:
      row.position === null
        ? null
        : {
            position: row.position,
            enabled: row.enabled,
            backend: {
              id,
              type: row.type,
              config: row.config,
              isDefault: row.is_default,
              secretFields: row.secret_fields,
            },
          },
  }));
}

type BackendRow = Pick<ChangedBackend, 'id' | 'name' | 'action'> &
  (
    | { position: null }
    | {
        position: number;
        enabled: boolean;
        type: string;
        config: JsonObject;
        is_default: boolean;
        secret_fields: string[];
      }
  );

/** Faults that no import may bring in: the folder of a local default backend is opened wherever it is. */
const blocking = new Set(['default_elsewhere']);

/** Puts together what changes and what backend-registry said of it. */
export function planBackends(
  backends: readonly ChangedBackend[],
  judgements: ReadonlyMap<string, BackendJudgement>,
): BackendPlan {
  const plan: BackendPlan = { changes: [], knownIds: [], warnings: [], blockers: [] };
  for (const { id, name, action, wanted } of backends) {
    const judgement = wanted ? judgements.get(id) : undefined;
    plan.changes.push({ id, name, action, missingSecretFields: judgement?.missingSecretFields ?? [] });
    if (!wanted) continue;
    const pointer = `/backends/${wanted.position}`;
    if (judgement?.known) plan.knownIds.push(id);
    else if (wanted.enabled) {
      const detail = `${name} comes in disabled and without secrets, as no backend of this id and place is here now.`;
      plan.warnings.push({ pointer, code: 'backend_disabled', detail });
    }
    for (const fault of judgement?.faults ?? []) {
      const finding = { pointer: pointer + fault.pointer, code: fault.code, detail: `${name} ${fault.detail}` };
      (blocking.has(fault.code) ? plan.blockers : plan.warnings).push(finding);
    }
  }
  return plan;
}

/** What is said of more backends than are looked at. */
export function unjudged(backends: readonly ChangedBackend[], most: number): BackendPlan {
  const detail = `There can not be more than ${most} backends.`;
  return {
    changes: backends.map(({ id, name, action }) => ({ id, name, action })),
    knownIds: [],
    warnings: [],
    blockers: [{ pointer: '/backends', code: 'too_many_backends', detail }],
  };
}
