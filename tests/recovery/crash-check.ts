import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expectStatus, sha256 } from '../support/client.ts';
import type { Client, Json } from '../support/client.ts';
import { contentOf } from '../support/uploads.ts';
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
    else if (entry.fileId !== null && entry.fileId !== file['id'])
      journal.violated(`${entry.name} has another id than was told`);
    else if (sha256(await contentOf(client, file['id'])) !== entry.sha256)
      journal.violated(`${entry.name} has other bytes`);
    seen.add(file['name']);
  }
  for (const { name, outcome } of journal.entries.values()) {
    if (outcome === 'ok' && !seen.has(name)) journal.violated(`${name} was acknowledged and is lost`);
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
