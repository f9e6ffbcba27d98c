import { encodeCursor } from '@stowage/common/cursor';
import { alternate } from '../measure/alternate.ts';
import type { Contender } from '../measure/alternate.ts';
import type { WireRequest } from '../driver/jobs.ts';
import { seedDirectory, seededDirectoryId } from '../system/seed.ts';
import type { Stowage } from '../system/stowage.ts';
import { requester } from './contenders.ts';
import { treeChanger } from './w6-tree-changes.ts';
import { Started } from './workload.ts';
import type { Workload } from './workload.ts';

const pageItems = 100;
const sorts = ['name', 'created_at', 'updated_at', 'size'] as const;
const orders = ['asc', 'desc'] as const;
type Sort = (typeof sorts)[number];

/** The numbers of seeded directories here begin with it. */
const firstDirectory = 3;

/**
 * W5, growth: pages of ever bigger directories in every order. One request at a time, and each point once before any is
 * asked for again, so that all points meet the same moments.
 */
export const w5Growth: Workload = {
  name: 'W5-growth',
  title: 'pages of 100 in every order, one request at a time: medians in ms',
  run: async (setting) => {
    await using started = new Started(setting, 'w5-growth');
    const sizes = setting.small ? [200, 400] : [10_000, 100_000, 1_000_000];
    const contenders: Contender[] = [];
    // How a query grows does not depend on the number of processes: the first mode will do.
    for (const system of (await started.systems()).slice(0, 1)) {
      const requests: WireRequest[] = [];
      for (const [index, size] of sizes.entries()) {
        setting.say(`seeding a directory of ${size}`);
        await seedDirectory(system, firstDirectory + index, size);
        requests.push(...(await pagesOf(system, firstDirectory + index, size)));
      }
      const count = requests.length * (setting.small ? 2 : 30);
      const pace = { connections: 1, count, readBytes: 65_536 };
      contenders.push(requester(setting, system.mode, system, requests, pace));
      contenders.push(await treeChanger(setting, system, `${system.mode}, changes`, firstDirectory, sizes));
    }
    return await alternate('W5-growth', 'ms', contenders, setting.rounds);
  },
};

/** The first, a middle and the last page in every order. */
async function pagesOf(system: Stowage, directory: number, size: number): Promise<WireRequest[]> {
  const requests: WireRequest[] = [];
  for (const sort of sorts) {
    for (const order of orders) {
      const path = `/api/directories/${seededDirectoryId(directory)}/children?limit=${pageItems}&sort=${sort}&order=${order}`;
      const places = { first: 0, middle: size / 2, last: size - pageItems };
      for (const [place, offset] of Object.entries(places)) {
        const cursor = offset === 0 ? '' : `&cursor=${await cursorAt(system, directory, sort, order, offset)}`;
        const label = `${size} ${sort} ${order} ${place}`;
        requests.push({ method: 'GET', path: `${path}${cursor}`, expect: 200, label });
      }
    }
  }
  return requests;
}

/** The cursor that the page before would have given; getting there page by page would take minutes. */
async function cursorAt(
  { database }: Stowage,
  directory: number,
  sort: Sort,
  order: (typeof orders)[number],
  offset: number,
): Promise<string> {
  const { rows } = await database.query<{ key: string | Date; id: string }>(
    `select ${sort} as key, id from catalog.nodes where parent_id = $1 and kind = 'file' and deleted_at is null
     order by ${sort} ${order}, id ${order} limit 1 offset $2`,
    [seededDirectoryId(directory), offset - 1],
  );
  const [row] = rows;
  if (!row) throw new Error(`directory ${directory} has no ${offset} files`);
  const key = row.key instanceof Date ? row.key.toISOString() : row.key;
  return encodeCursor([`${sort} ${order}`, 'file', key, row.id]);
}
