import pg from 'pg';
import type { Client } from '../../support/client.ts';
import { expectStatus } from '../../support/client.ts';
import type { NodeVersion } from './node-versions.ts';
import { parentOf } from './tree-history.ts';

interface Row {
  id: string;
  parent_id: string | null;
  name: string;
  live: boolean;
}

/** Looks at the whole tree again and again, in one snapshot each, and notes what no tree may be. */
export class TreeWatch {
  readonly violations: string[] = [];
  looks = 0;
  readonly #pool: pg.Pool;
  #running: Promise<void> = Promise.resolve();
  #stopped = false;

  constructor(databaseUrl: string) {
    this.#pool = new pg.Pool({ connectionString: databaseUrl, max: 1 });
  }

  start(): void {
    this.#running = this.#watch();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#running;
    await this.look();
    await this.#pool.end();
  }

  async look(): Promise<void> {
    const { rows } = await this.#pool.query<Row>(
      'select id, parent_id, name, deleted_at is null as live from catalog.nodes',
    );
    this.violations.push(...faultsOf(rows));
    this.looks += 1;
  }

  async #watch(): Promise<void> {
    while (!this.#stopped) {
      await this.look();
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
}

/** What is wrong with the shape of a tree: two of one name, a parent that is none, a circle, more than one root. */
export function faultsOf(rows: readonly Row[]): string[] {
  const faults: string[] = [];
  const parents = new Map(rows.map(({ id, parent_id: parentId }) => [id, parentId]));
  const names = new Set<string>();
  for (const { parent_id: parentId, name, live } of rows) {
    const key = JSON.stringify([parentId, name.normalize('NFC')]);
    if (live && names.has(key)) faults.push(`two have the name ${key}`);
    if (live) names.add(key);
  }
  const roots = rows.filter(({ parent_id: parentId }) => parentId === null);
  if (roots.length !== 1) faults.push(`${roots.length} nodes have no parent`);
  const grounded = new Set(roots.map(({ id }) => id));
  for (const { id } of rows) {
    const way: string[] = [];
    let at: string | null | undefined = id;
    while (at && !grounded.has(at) && !way.includes(at)) {
      way.push(at);
      at = parents.get(at);
    }
    if (at && grounded.has(at)) for (const step of way) grounded.add(step);
    else faults.push(`${id} does not lead to the root, but to ${at ?? 'nobody'}`);
  }
  return faults;
}

/** Compares what the interface shows of each node now with the last version that was acknowledged. */
export async function compareWithModel(client: Client, versions: Map<string, NodeVersion[]>): Promise<string[]> {
  const faults: string[] = [];
  const last = new Map([...versions].map(([id, all]) => [id, all.at(-1)]));
  for (const [id, expected] of last) {
    const directory = await client.get(`/api/directories/${id}`);
    const { json } = directory.status === 200 ? directory : expectStatus(await client.get(`/api/files/${id}`), 200);
    const seen = JSON.stringify([json['version'], json['name'], parentOf(json)]);
    const wanted = JSON.stringify([expected?.version, expected?.name, expected?.parentId]);
    if (seen !== wanted) faults.push(`${id} is ${seen}, not ${wanted}`);
    if (directory.status === 200) faults.push(...(await compareChildren(client, id, last)));
  }
  return faults;
}

async function compareChildren(
  client: Client,
  id: string,
  last: Map<string, NodeVersion | undefined>,
): Promise<string[]> {
  const { json } = expectStatus(await client.get(`/api/directories/${id}/children?limit=1000`), 200);
  const children: { id: string }[] = json['items'];
  const seen = children.map((child) => child.id).sort();
  const wanted = [...last]
    .filter(([, version]) => version?.parentId === id && !version.recycled)
    .map(([child]) => child)
    .sort();
  return seen.join() === wanted.join() ? [] : [`the children of ${id} are ${seen.join()}, not ${wanted.join()}`];
}
