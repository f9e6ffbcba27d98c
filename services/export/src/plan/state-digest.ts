import type { ClientBase } from 'pg';
import { liveRecords } from './compared-columns.ts';

/** Two, as 64 bits that meet by chance among millions of rows and many plans would do so too often. */
const seeds = [1, 2] as const;

const { nodes, policies } = liveRecords;

/**
 * What is digested: directories, files, policies, and the configuration of backends. Of these `marked` is left out, which
 * a health check sets, and what seals a secret: a secret that is changed makes a new version of its backend, one that is
 * only sealed anew is the same.
 */
const sources = [
  `select row(${[...nodes.key.map((column) => `r.${column}`), ...nodes.columns].join()}) as record from ${nodes.from} r`,
  `select row(${[...policies.key.map((column) => `r.${column}`), ...policies.columns].join()}) as record
   from ${policies.from} r`,
  `select row(r.id, r.name, r.type, r.enabled, r.is_default, r.config, s.fields, r.version, r.created_at, r.updated_at)
     as record
   from registry.backends r left join registry.backend_secret_fields s on s.backend_id = r.id`,
];

/**
 * The digest that a plan is bound to: another one after any change of directories, files, policies or backends'
 * configuration, the same after whatever the service does by itself to health, jobs, replicas and verification. Sums of
 * hashes, so that nothing is sorted: a million files take a second or two. Good within one version of PostgreSQL.
 */
export async function stateDigest(client: ClientBase): Promise<string> {
  const parts: string[] = [];
  for (const source of sources) {
    const sums = seeds.map((seed) => `coalesce(sum(hash_record_extended(record, ${seed})), 0)`);
    const { rows } = await client.query<{ digest: string }>(
      `select concat_ws('.', count(*), ${sums.join()}) as digest from (${source}) records`,
    );
    parts.push(rows[0]?.digest ?? '');
  }
  return parts.join(' ');
}
