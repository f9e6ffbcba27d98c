import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { logIn } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { startSystem } from '../support/system.ts';
import type { Mode, System } from '../support/system.ts';
import { report, sized } from './support/size.ts';
import { checkHistory } from './support/tree-check.ts';
import { changeTree } from './support/tree-client.ts';
import type { Known } from './support/tree-client.ts';
import { ask } from './support/tree-history.ts';
import type { Event } from './support/tree-history.ts';
import { compareWithModel, faultsOf, TreeWatch } from './support/tree-shape.ts';

const clients = 16;
const operations = sized(2_500, 50_000);

/** Together the two modes do the size that is promised. */
describe.each<Mode>(['standalone', 'services'])('concurrent changes of the tree, %s', (mode) => {
  const random = new Random(chooseSeed());
  const history: Event[] = [];
  let system: System;
  let client: Client;

  beforeAll(async () => {
    report(`tree, ${mode}`, { STOWAGE_TEST_SEED: random.seed });
    system = await startSystem(mode);
    client = await logIn(system.url);
  });

  afterAll(() => system?.close());

  /** Each client finds these there, and everything it makes lies below one of them. */
  async function plant(): Promise<Known> {
    const top = String((await client.makeDirectory('tree'))['id']);
    const known: Known = { directories: [], files: [], binned: [] };
    for (let index = 0; index < 12; index += 1) {
      const wish = { verb: 'create', kind: 'directory', id: null, parentId: top, name: `first-${index}` } as const;
      known.directories.push(String((await ask(client, wish, history)).json['id']));
    }
    for (let index = 0; index < 20; index += 1) {
      const call = performance.now();
      const [parentId, name] = [known.directories[index % 12] ?? top, `file-${index}`];
      const json = await client.putFile(name, name, { directory: parentId });
      const wish = { verb: 'create', kind: 'file', id: null, parentId, name } as const;
      history.push({ wish, call, returned: performance.now(), status: 201, json });
      known.files.push(String(json['id']));
    }
    return known;
  }

  test('what was acknowledged has one order in each directory, and a tree stays a tree', async () => {
    const known = await plant();
    const watch = new TreeWatch(system.databaseUrl);
    watch.start();
    const began = performance.now();
    await Promise.all(
      Array.from({ length: clients }, () =>
        changeTree(client, random.fork(), known, history, Math.ceil(operations / clients)),
      ),
    );
    const seconds = (performance.now() - began) / 1000;
    await watch.stop();
    const { violations, versions, names } = checkHistory(history);
    const differences = await compareWithModel(client, versions);
    const count = (test: (event: Event) => boolean): number => history.filter(test).length;
    report(`tree, ${mode}`, {
      operations: history.length,
      changed: [...versions.values()].reduce((sum, all) => sum + all.length, 0),
      refused: {
        name_conflict: count(({ json }) => json['code'] === 'name_conflict'),
        cycle: count(({ json }) => json['code'] === 'cycle'),
        other: count(({ status, json }) => status >= 400 && !['name_conflict', 'cycle'].includes(json['code'])),
      },
      nodes: versions.size,
      names_checked: names,
      snapshots: watch.looks,
      per_second: Math.round(operations / seconds),
    });
    const found = [...violations, ...watch.violations, ...differences];
    expect({ seed: random.seed, found: found.slice(0, 20) }).toEqual({ seed: random.seed, found: [] });
    expect(history.length).toBeGreaterThanOrEqual(operations);
    for (const code of ['name_conflict', 'cycle', 'state_conflict', 'parent_missing'])
      expect(count(({ json }) => json['code'] === code)).toBeGreaterThan(0);
  });

  test('a history with one lie in it is found out', () => {
    const { wish, call, returned, json } = history.find(({ wish: { verb } }) => verb === 'create') ?? lie();
    const twice = { wish, call, returned, status: 201, json: { ...json, id: 'somebody-else' } };
    expect(checkHistory([...history, twice]).violations).not.toEqual([]);
    const stale = history.findLast((event) => event.status === 200 && event.json['version'] === 1) ?? lie();
    const late = { ...stale, wish: { ...stale.wish, verb: 'read' as const }, call: Infinity, returned: Infinity };
    const renamed = history.find((event) => event.json['id'] === stale.json['id'] && event.json['version'] === 2);
    if (renamed) expect(checkHistory([...history, late]).violations).not.toEqual([]);
    const circle = { id: 'a', parent_id: 'a', name: 'a', live: true };
    const root = { id: 'root', parent_id: null, name: '', live: true };
    expect(faultsOf([root])).toEqual([]);
    expect(faultsOf([root, circle])).toHaveLength(1);
  });
});

function lie(): never {
  throw new Error('the history holds nothing to change');
}
