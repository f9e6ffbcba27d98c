import { Readable } from 'node:stream';
import type pg from 'pg';
import { to as copyTo } from 'pg-copy-streams';
import { toDatabaseError } from '@stowage/common/database/database-error';
import { cancelOnAbort } from '../document/cancel-on-abort.ts';
import { DocumentDigest } from '../document/canonical.ts';
import { documentFormat } from '../document/document-schema.ts';
import { sectionNames } from '../document/records.ts';
import type { SectionName } from '../document/records.ts';
import { RecordLines } from './record-lines.ts';
import { sectionQueries } from './section-queries.ts';

export { documentFormat };

/** While a snapshot lasts PostgreSQL can't clean up: this ends one whose reader is gone, or too slow for any use. */
const limits = { idleMs: 60_000, statementMs: 3 * 3_600_000 } as const;

/** What a document says at its ends. */
export interface DocumentFacts {
  exportedAt: Date;
  counts: Record<SectionName, number>;
  /** Lower-case hexadecimal. */
  sha256: string;
}

/**
 * All metadata as one JSON document of one snapshot, streamed: memory does not grow with it. The first read waits for the
 * snapshot; what fails later breaks the stream. Destroying it gives the connection back at once, whatever PostgreSQL is at. `whole`
 * hears what was written, before its last bytes are read.
 */
export function exportDocument(pool: pg.Pool, whole: (facts: DocumentFacts) => void = () => undefined): Readable {
  const left = new AbortController();
  const stream = Readable.from(document(pool, whole, left.signal), { objectMode: false, highWaterMark: 256 * 1024 });
  const destroy = stream._destroy;
  // By itself it would wait for the generator, and so for PostgreSQL's next bytes, which may never come.
  stream._destroy = (error, done) => {
    left.abort();
    destroy.call(stream, error, done);
  };
  return stream;
}

type Told = (facts: DocumentFacts) => void;

async function* document(pool: pg.Pool, told: Told, left: AbortSignal): AsyncGenerator<Buffer> {
  const client = await pool.connect().catch(rethrow);
  const stopClosing = cancelOnAbort(client, left);
  let whole = false;
  try {
    await client.query(`begin isolation level repeatable read read only`);
    await client.query(`set local idle_in_transaction_session_timeout = ${limits.idleMs}`);
    await client.query(`set local statement_timeout = ${limits.statementMs}`);
    yield* sections(client, told);
    await client.query('commit');
    whole = true;
  } catch (error) {
    rethrow(error);
  } finally {
    await stopClosing();
    client.release(!whole);
  }
}

async function* sections(client: pg.PoolClient, told: Told): AsyncGenerator<Buffer> {
  const { rows } = await client.query<{ now: Date; id: string }>(`select now(), id from export.instance`);
  const [instance] = rows;
  if (!instance) throw new Error('The installation has no identity.');
  const head = { ...documentFormat, exported_at: instance.now.toISOString(), instance_id: instance.id };
  yield Buffer.from(JSON.stringify(head).slice(0, -1));
  const digest = new DocumentDigest();
  const counts = { directories: 0, files: 0, blobs: 0, replicas: 0, backends: 0, policies: 0 };
  for (const name of sectionNames) {
    digest.section(name);
    yield Buffer.from(`,\n"${name}":[`);
    const lines = new RecordLines();
    for await (const bytes of copy(client, name)) {
      digest.bytes(bytes);
      yield lines.asElements(bytes);
    }
    yield Buffer.from(']');
    counts[name] = lines.count;
  }
  const sha256 = digest.hex();
  told({ exportedAt: instance.now, counts, sha256 });
  yield Buffer.from(`,\n"counts":${JSON.stringify(counts)},\n"sha256":"${sha256}"}\n`);
}

/**
 * A section's records in canonical JSON, each with LF, as bytes: rows as objects would fill the heap faster than it is
 * collected. CSV writes a value as it is where it holds neither its quote nor its delimiter, and JSON has no control
 * character.
 */
function copy(client: pg.PoolClient, name: SectionName): AsyncIterable<Buffer> {
  const options = `format csv, quote e'\\x01', escape e'\\x01', delimiter e'\\x02'`;
  return client.query(copyTo(`copy (${sectionQueries[name]}) to stdout (${options})`));
}

function rethrow(error: unknown): never {
  throw toDatabaseError(error);
}
