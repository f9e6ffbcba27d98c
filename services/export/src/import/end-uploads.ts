import type { ClientBase } from 'pg';
import { rootDirectoryId } from '@stowage/common/ids';
import { changesOf } from './changes.ts';

/** How long an ended upload is still known, and answered with `gone`. */
const tombstoneHours = 24;

/**
 * Ends uploads that have nowhere to go any more, as expiry does: what they staged is freed by housekeeping, and catalog is
 * asked what became of those that were being finalized. What lay on a backend that is gone, or lies elsewhere now, can't be
 * freed: it is forgotten. Their writers are told to stop once this commits.
 */
export async function endUploads(client: ClientBase, number: number): Promise<void> {
  const lost = `u.backend_id in (
    select id from ${changesOf(number, 'backends')} where what = 'remove' or (what = 'update' and moved))`;
  await client.query(`
    with ended as (
      update upload.uploads u set state = 'ended', backend_id = null, discarded_at = now(),
        expires_at = now() + interval '${tombstoneHours} hours'
      where ${lost} and state <> 'finalized' returning id)
    ${stopWriters}`);
  await client.query(`
    with ended as (
      update upload.uploads u set state = case state when 'open' then 'ended' else 'abandoned' end,
        expires_at = now() + interval '${tombstoneHours} hours'
      where state in ('open', 'finalizing') and not exists (
        select from catalog.nodes n where n.id = coalesce(u.directory_id, '${rootDirectoryId}')
          and n.kind = 'directory' and n.purged_at is null)
      returning id)
    ${stopWriters}`);
}

const stopWriters = `select pg_notify('stowage_upload_release', id || '/' || nextval('upload.fences')) from ended`;
