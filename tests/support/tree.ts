import { expect } from '@jest/globals';
import { expectStatus } from './client.ts';
import type { Answer, Client, Json } from './client.ts';

const idPattern = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const timePattern = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const aTime = expect.stringMatching(timePattern);

const common = {
  id: expect.stringMatching(idPattern),
  name: expect.any(String),
  path: expect.any(String),
  state: 'active',
  version: expect.any(Number),
  created_at: aTime,
  updated_at: aTime,
  deleted_at: null,
  purge_at: null,
};

const recycledFields = { state: 'recycled', deleted_at: aTime, purge_at: aTime };

/** Expects an active directory, or one in the bin, with exactly the fields of contract §3. */
export function expectDirectory(json: Json, facts: Json = {}): void {
  const recycled = facts['state'] === 'recycled' ? recycledFields : {};
  expect(json).toEqual({
    kind: 'directory',
    ...common,
    parent_id: expect.stringMatching(idPattern),
    ...recycled,
    ...facts,
  });
}

/** Expects an active file, or one in the bin, with exactly the fields of contract §4, without `placement`. */
export function expectFile(json: Json, facts: Json = {}): void {
  const recycled = facts['state'] === 'recycled' ? recycledFields : {};
  expect(json).toEqual({
    kind: 'file',
    ...common,
    directory_id: expect.stringMatching(idPattern),
    size: expect.any(Number),
    media_type: expect.stringMatching(/^[a-z]+\/\S+$/),
    file_class: expect.stringMatching(/^[a-z][a-z0-9_-]{0,62}$/),
    sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
    ...recycled,
    ...facts,
  });
}

/** The ETag that goes with a directory or file. */
export function expectEtag(answer: Answer): void {
  expect(answer.headers.get('etag')).toBe(`"${answer.json['version']}"`);
}

/** The JSON of a directory as it is now. */
export async function readDirectory(client: Client, id: string): Promise<Json> {
  return expectStatus(await client.get(`/api/directories/${id}`), 200).json;
}

/** The JSON of a file as it is now, with its placement. */
export async function readFile(client: Client, id: string): Promise<Json> {
  return expectStatus(await client.get(`/api/files/${id}`), 200).json;
}

export interface Pages {
  items: Json[];
  pages: Json[][];
}

/** Reads a list to its end; `between` runs after each page but the last. */
export async function readPages(
  client: Client,
  list: string,
  between: (page: Json[], number: number) => Promise<void> = async () => undefined,
): Promise<Pages> {
  const pages: Json[][] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const query: string = cursor === '' ? '' : `${list.includes('?') ? '&' : '?'}cursor=${encodeURIComponent(cursor)}`;
    const { json } = expectStatus(await client.get(`${list}${query}`), 200);
    pages.push(json['items']);
    cursor = json['next_cursor'];
    if (cursor !== null) await between(json['items'], pages.length);
  }
  return { items: pages.flat(), pages };
}

/** The names of a directory's children, in the order of the listing. */
export async function childNames(client: Client, id: string, query = ''): Promise<string[]> {
  const { items } = await readPages(client, `/api/directories/${id}/children?limit=1000${query}`);
  return items.map((item) => item['name']);
}

/** Directories below each other; gives their JSON, the topmost first. */
export async function makeChain(client: Client, parentId: string, names: readonly string[]): Promise<Json[]> {
  const made: Json[] = [];
  for (const name of names) made.push(await client.makeDirectory(name, made.at(-1)?.['id'] ?? parentId));
  return made;
}

/** Runs `work` for each, some at a time, and gives the results in order. */
export async function inBatches<T, R>(all: readonly T[], work: (one: T) => Promise<R>, size = 16): Promise<R[]> {
  const results: R[] = [];
  for (let at = 0; at < all.length; at += size)
    results.push(...(await Promise.all(all.slice(at, at + size).map(work))));
  return results;
}

/** Orders text as bytes of UTF-8. */
export function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

/** The item at a place where there must be one. */
export function at<T>(items: readonly T[], index: number): T {
  const item = items.at(index);
  if (item === undefined) throw new Error(`there is nothing at ${index} of ${items.length}`);
  return item;
}
