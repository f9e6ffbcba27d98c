import type pg from 'pg';
import type { DocumentFacts } from '../snapshot/export-document.ts';

/** Why a document is kept. */
export type Reason = 'scheduled' | 'before_import';

/** A document that lies on a backend, or is to. */
export interface KeptPlace {
  id: string;
  backendId: string;
  key: string;
}

/** A document to be read. */
export interface KeptExport {
  id: string;
  state: 'writing' | 'kept';
  /** Null for one that lies in the database. */
  place: { backendId: string; key: string } | null;
  /** Of the compressed document. */
  bytes: number;
}

type Queryable = Pick<pg.Pool, 'query'>;

/** The kept document with this id, or null. */
export async function findKept(db: Queryable, id: string): Promise<KeptExport | null> {
  const { rows } = await db.query<{
    id: string;
    state: 'writing' | 'kept';
    backend_id: string | null;
    key: string | null;
    bytes: string | null;
  }>(`select id, state, backend_id, key, bytes from export.exports where id = $1`, [id]);
  const [row] = rows;
  if (!row) return null;
  const { backend_id: backendId, key } = row;
  const place = backendId !== null && key !== null ? { backendId, key } : null;
  return { id: row.id, state: row.state, place, bytes: Number(row.bytes) };
}

/** Notes what is about to be written to a backend, so that a crash leaves nothing there that nobody knows. */
export async function noteWriting(db: Queryable, { id, backendId, key }: KeptPlace, jobId: string): Promise<void> {
  await db.query(
    `insert into export.exports (id, reason, backend_id, key, job_id) values ($1, 'scheduled', $2, $3, $4)`,
    [id, backendId, key, jobId],
  );
}

/** Notes that it is there. False where it was taken for a leftover meanwhile. */
export async function noteKept(db: Queryable, id: string, facts: DocumentFacts, bytes: number): Promise<boolean> {
  const { rowCount } = await db.query(
    `update export.exports set state = 'kept', bytes = $2, document_sha256 = decode($3, 'hex'), counts = $4, created_at = $5
    where id = $1 and state = 'writing'`,
    [id, bytes, facts.sha256, JSON.stringify(facts.counts), facts.exportedAt],
  );
  return rowCount === 1;
}

/** What earlier tries of a job left half-written, and those of jobs that run no more. */
export async function findLeftovers(db: Queryable, jobId: string): Promise<KeptPlace[]> {
  const { rows } = await db.query<KeptPlace>(
    `select e.id, e.backend_id as "backendId", e.key from export.exports e
    where e.reason = 'scheduled' and e.state = 'writing'
      and (e.job_id = $1 or not exists (select from jobs.jobs j where j.id = e.job_id and j.state = 'running'))
    order by e.id`,
    [jobId],
  );
  return rows;
}

/** Scheduled documents beyond the newest `keep`, oldest first. */
export async function findSurplus(db: Queryable, keep: number): Promise<KeptPlace[]> {
  const { rows } = await db.query<KeptPlace>(
    `select id, backend_id as "backendId", key from (
      select *, row_number() over (order by id desc) as place from export.exports where reason = 'scheduled' and state = 'kept'
    ) ranked where place > $1 order by id`,
    [keep],
  );
  return rows;
}

/** Forgets a document; safe to repeat. */
export async function forgetKept(db: Queryable, id: string): Promise<void> {
  await db.query(`delete from export.exports where id = $1`, [id]);
}
