import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { expectStatus, sha256 } from './client.ts';
import type { Client, Json } from './client.ts';
import { contentOf } from './uploads.ts';
import type { Journal } from './crash-journal.ts';

/** All children of a directory, page by page. */
export async function childrenOf(client: Client, directory: string): Promise<Json[]> {
  const items: Json[] = [];
  let cursor = '';
  do {
    const page = expectStatus(
      await client.get(`/api/directories/${directory}/children?limit=500&cursor=${cursor}`),
      200,
    ).json;
    items.push(...page['items']);
    cursor = page['next_cursor'] ?? '';
  } while (cursor !== '');
  return items;
}

/** Compares what is there with the clients' journal; adds what is wrong to its violations. */
export async function checkFiles(client: Client, directory: string, journal: Journal): Promise<Json[]> {
  const files = await childrenOf(client, directory);
  const seen = new Set<string>();
  for (const file of files) {
    const entry = journal.entries.get(file['name']);
    if (!entry) journal.violated(`${file['name']} exists, but nobody made it`);
    else if (seen.has(entry.name)) journal.violated(`${entry.name} exists twice`);
    else if (entry.removal === 'ok') journal.violated(`${entry.name} was deleted and came back`);
    else if (entry.fileId !== null && entry.fileId !== file['id'])
      journal.violated(`${entry.name} has another id than was told`);
    else if (sha256(await contentOf(client, file['id'])) !== entry.sha256)
      journal.violated(`${entry.name} has other bytes`);
    seen.add(file['name']);
  }
  for (const { name, outcome, removal } of journal.entries.values()) {
    if (outcome === 'ok' && removal === 'none' && !seen.has(name))
      journal.violated(`${name} was acknowledged and is lost`);
    if (outcome === 'intent') journal.violated(`${name} was never brought to an end`);
  }
  return files;
}

/** What lies in the staging folder of the default backend. */
export function stagedIn(dataDir: string): Promise<string[]> {
  return readdir(join(dataDir, 'backends/local/staging'));
}

/** The sha256 of every blob on the default backend, sorted. */
export async function blobHashes(dataDir: string): Promise<string[]> {
  const entries = await readdir(join(dataDir, 'backends/local/blobs'), { recursive: true, withFileTypes: true });
  const hashes: string[] = [];
  for (const entry of entries.filter((candidate) => candidate.isFile())) {
    const hash = createHash('sha256');
    for await (const piece of createReadStream(join(entry.parentPath, entry.name))) hash.update(piece);
    hashes.push(hash.digest('hex'));
  }
  return hashes.sort();
}

/** Looks at the tables themselves: the tree is one, names are unique in it, and no job is held by a worker that is gone. */
export async function checkTables(databaseUrl: string, journal: Journal): Promise<void> {
  const client = new pg.Client({ connectionString: databaseUrl, connectionTimeoutMillis: 10_000 });
  await client.connect();
  try {
    for (const [what, text] of Object.entries(faultQueries)) {
      const { rows } = await client.query<Json>(text);
      for (const row of rows) journal.violated(`${what}: ${JSON.stringify(row)}`);
    }
  } finally {
    await client.end();
  }
}

const faultQueries = {
  'two entries of one name': `
    select parent_id, name from catalog.nodes where deleted_at is null and purged_at is null
    group by parent_id, name having count(*) > 1`,
  'a node that the root does not lead to': `
    with recursive reached as (
      select id from catalog.nodes where parent_id is null and kind = 'directory' and name = ''
      union select node.id from catalog.nodes node join reached on node.parent_id = reached.id)
    select id, name from catalog.nodes
    where deleted_at is null and purged_at is null and id not in (select id from reached)`,
  'a file without its blob': `
    select node.id from catalog.nodes node left join catalog.replicas replica on replica.blob_id = node.blob_id
    where node.kind = 'file' and node.purged_at is null and replica.blob_id is null`,
  'a running job whose lease ran out long ago': `
    select id, kind from jobs.jobs where state = 'running' and lease_until < now() - interval '10 s'`,
  'an upload that became two files': `
    select blob_id from catalog.nodes where blob_id is not null group by blob_id having count(*) > 1`,
};
