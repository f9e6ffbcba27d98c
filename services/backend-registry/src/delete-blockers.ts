import { sql } from 'kysely';
import type { QueryExecutorProvider } from 'kysely';
import type { MessageInitShape } from '@bufbuild/protobuf';
import type { DeleteBlockerSchema } from '@stowage/proto/stowage/backend_registry/v1/backend';
import type { BackendRow } from './tables.ts';

/** One reason why a backend can't be deleted, as clients see it. */
export type DeleteBlocker =
  | { code: 'not_disabled' }
  | { code: 'default_backend' }
  /** Replicas and unfinished uploads; the bytes are those of the replicas. */
  | { code: 'has_replicas'; count: number; bytes: number }
  | { code: 'referenced_by_policy'; file_classes: string[] };

/** What lies on a backend, or will. */
export interface Holdings {
  replicas: number;
  bytes: number;
  uploads: number;
}

/** What a backend holds, exactly: from kept counts, so that it costs the same at millions of replicas. */
export async function holdingsOf(db: QueryExecutorProvider, backendId: string): Promise<Holdings> {
  const { rows } = await sql<{ replicas: string; bytes: string; uploads: string }>`
    select coalesce(sum(u.replicas), 0) as replicas, coalesce(sum(u.bytes), 0) as bytes,
      (select coalesce(sum(uploads), 0) from upload.backend_uploads where backend_id = ${backendId}) as uploads
    from catalog.backend_usage u where u.backend_id = ${backendId}`.execute(db);
  const [row] = rows;
  return { replicas: Number(row?.replicas), bytes: Number(row?.bytes), uploads: Number(row?.uploads) };
}

/** All that keeps a backend from being deleted now. */
export async function deleteBlockers(db: QueryExecutorProvider, row: BackendRow): Promise<DeleteBlocker[]> {
  const { replicas, bytes, uploads } = await holdingsOf(db, row.id);
  const { rows: classes } = await sql<{ file_class: string }>`
    select file_class from placement.backend_policies where backend_id = ${row.id} order by file_class`.execute(db);
  const blockers: DeleteBlocker[] = [];
  if (row.enabled) blockers.push({ code: 'not_disabled' });
  if (row.is_default) blockers.push({ code: 'default_backend' });
  if (replicas + uploads > 0) blockers.push({ code: 'has_replicas', count: replicas + uploads, bytes });
  if (classes.length > 0) {
    blockers.push({ code: 'referenced_by_policy', file_classes: classes.map((found) => found.file_class) });
  }
  return blockers;
}

/** A blocker as services tell each other. */
export function blockerMessage(blocker: DeleteBlocker): MessageInitShape<typeof DeleteBlockerSchema> {
  switch (blocker.code) {
    case 'has_replicas':
      return { code: blocker.code, count: BigInt(blocker.count), bytes: BigInt(blocker.bytes) };
    case 'referenced_by_policy':
      return { code: blocker.code, fileClasses: blocker.file_classes };
    case 'not_disabled':
    case 'default_backend':
      return { code: blocker.code };
  }
}
