import type { ClientBase } from 'pg';
import { rootDirectoryId } from '@stowage/common/ids';
import { stagedTable } from '../document/staged-tables.ts';
import type { Finding } from './backend-changes.ts';
import { isThere } from './compared-columns.ts';

/** What an admin should know before the import of a staged document, all of it counted in the client's snapshot. */
export async function planWarnings(
  client: ClientBase,
  number: number,
  exportedAt: Date,
  graceMs: number,
): Promise<Finding[]> {
  const [facts] = (await client.query<Facts>(factsOf(number), [exportedAt, graceMs])).rows;
  if (!facts) return [];
  const warnings: Finding[] = [];
  const warn = (code: string, pointer: string, detail: string): void => void warnings.push({ code, pointer, detail });
  if (facts.old) {
    warn(
      'older_than_grace',
      '/exported_at',
      'The document is older than the time for which content without a file is kept: what was deleted since may be gone from the backends.',
    );
  }
  if (!facts.read_only) {
    warn('not_read_only', '', 'The service is not read-only: a change made meanwhile makes this plan stale.');
  }
  if (facts.newer_files > 0) {
    const detail = `Files that came after the document was exported, and would be lost: ${facts.newer_files}.`;
    warn('newer_files_lost', '/files', detail);
  }
  if (facts.uploads > 0) {
    const detail = `Unfinished uploads that would have nowhere to go, and be cancelled: ${facts.uploads}.`;
    warn('uploads_cancelled', '', detail);
  }
  for (const { name, replicas } of facts.removed_backends ?? []) {
    const detail = `${name} is not in the document, and would be removed with what is known of copies on it: ${replicas}.`;
    warn('backend_removed', '/backends', detail);
  }
  if (facts.unverified > 0) {
    const detail = `Copies that come in as unverified, to be read from, but to justify no removal until a job has read them: ${facts.unverified}.`;
    warn('replicas_unverified', '/replicas', detail);
  }
  warn('removals_held', '', 'Nothing is removed from backends for 7 days after the import.');
  return warnings;
}

interface Facts {
  old: boolean;
  read_only: boolean;
  newer_files: number;
  uploads: number;
  unverified: number;
  removed_backends: { name: string; replicas: number }[] | null;
}

function factsOf(number: number): string {
  const nodes = stagedTable(number, 'nodes');
  const replicas = stagedTable(number, 'replicas');
  const backends = stagedTable(number, 'backends');
  return `
    select
      $1::timestamptz < now() - $2 * interval '1 ms' as old,
      (select mode = 'read_only' from identity.system_mode) as read_only,
      (select count(*)::float8 from catalog.nodes l
       where l.kind = 'file' and l.deleted_at is null and l.created_at > $1::timestamptz
         and not exists (select from ${nodes} s where s.id = l.id)) as newer_files,
      (select count(*)::float8 from upload.open_uploads u
       where not exists (
           select from ${nodes} s
           where s.id = coalesce(u.directory_id, '${rootDirectoryId}') and s.kind = 'directory' and s.purged_at is null)
         or u.backend_id is not null and not exists (
           select from ${backends} s where s.id = u.backend_id)) as uploads,
      (select count(*)::float8 from ${replicas} s where ${isThere('s')}) as unverified,
      (select json_agg(json_build_object('name', l.name, 'replicas', coalesce(u.replicas, 0)) order by l.name)
       from registry.backends l left join catalog.backend_usage u on u.backend_id = l.id
       where not exists (select from ${backends} s where s.id = l.id)) as removed_backends`;
}
