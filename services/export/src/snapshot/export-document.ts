import { Readable } from 'node:stream';
import type pg from 'pg';
import { toDatabaseError } from '@stowage/common/database/database-error';
import { canonicalJson, DocumentDigest } from '../document/canonical.ts';
import { documentFormat } from '../document/document-schema.ts';
import { sectionNames } from '../document/records.ts';
import type { SectionName } from '../document/records.ts';
import { sectionQueries } from './section-queries.ts';

export { documentFormat };

const rowsAtOnce = 500;
/** How long a reader may take no byte before the snapshot is given up: while it lasts PostgreSQL can't clean up. */
const idleReaderMs = 60_000;

/**
 * All metadata as one JSON document of one snapshot, streamed: memory does not grow with it. The first read waits for the
 * snapshot; what fails later breaks the stream. Destroying it gives the connection back.
 */
export function exportDocument(pool: pg.Pool): Readable {
  return Readable.from(document(pool), { objectMode: false, highWaterMark: 256 * 1024 });
}

async function* document(pool: pg.Pool): AsyncGenerator<Buffer> {
  const client = await pool.connect().catch(rethrow);
  let whole = false;
  try {
    await client.query(`begin isolation level repeatable read read only`);
    await client.query(`set local idle_in_transaction_session_timeout = ${idleReaderMs}`);
    yield* sections(client);
    await client.query('commit');
    whole = true;
  } catch (error) {
    rethrow(error);
  } finally {
    client.release(!whole);
  }
}

async function* sections(client: pg.PoolClient): AsyncGenerator<Buffer> {
  const { rows } = await client.query<{ now: Date; id: string }>(`select now(), id from export.instance`);
  const [instance] = rows;
  if (!instance) throw new Error('The installation has no identity.');
  const head = { ...documentFormat, exported_at: instance.now.toISOString(), instance_id: instance.id };
  yield Buffer.from(JSON.stringify(head).slice(0, -1));
  const digest = new DocumentDigest();
  const counts: Partial<Record<SectionName, number>> = {};
  for (const name of sectionNames) {
    digest.section(name);
    let count = 0;
    yield Buffer.from(`,\n"${name}":[`);
    for await (const lines of records(client, name)) {
      digest.records(lines);
      yield Buffer.from(`${count > 0 ? ',' : ''}\n${lines.join(',\n')}`);
      count += lines.length;
    }
    yield Buffer.from(']');
    counts[name] = count;
  }
  yield Buffer.from(`,\n"counts":${JSON.stringify(counts)},\n"sha256":"${digest.hex()}"}\n`);
}

/** A section's records in canonical JSON, some at a time; PostgreSQL reads the next ones meanwhile. */
async function* records(client: pg.PoolClient, name: SectionName): AsyncGenerator<string[]> {
  const { text, record } = sectionQueries[name];
  await client.query(`declare section no scroll cursor for ${text}`);
  const fetch = (): Promise<pg.QueryResult<Record<string, unknown>>> => {
    const page = client.query<Record<string, unknown>>(`fetch ${rowsAtOnce} from section`);
    // It is awaited a page later: until then nobody listens to its failure.
    page.catch(() => undefined);
    return page;
  };
  for (let next = fetch(); ;) {
    const { rows } = await next;
    if (rows.length === rowsAtOnce) next = fetch();
    if (rows.length > 0) yield rows.map((row) => canonicalJson(record ? record(row) : row));
    if (rows.length < rowsAtOnce) break;
  }
  await client.query('close section');
}

function rethrow(error: unknown): never {
  throw toDatabaseError(error);
}
