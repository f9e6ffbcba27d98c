import { alternate } from '../measure/alternate.ts';
import type { Contender } from '../measure/alternate.ts';
import type { WireRequest } from '../driver/jobs.ts';
import { seedDirectory, seededDirectoryId, seedEmptyDirectory } from '../system/seed.ts';
import type { Stowage } from '../system/stowage.ts';
import { requester, shortReads } from './contenders.ts';
import { Started } from './workload.ts';
import type { Setting, Workload } from './workload.ts';

/** The numbers of seeded directories here begin with it. */
const firstDirectory = 10;

/** W6: what lies below a directory must not matter to a change of its name or place, nor to reading it. */
export const w6: Workload = {
  name: 'W6',
  title: 'rename, move and stat of a directory by its descendants, one request at a time: medians in ms',
  run: async (setting) => {
    await using started = new Started(setting, 'w6');
    const sizes = setting.small ? [10, 200] : [10, 1_000, 100_000];
    const contenders: Contender[] = [];
    for (const system of await started.systems()) {
      for (const [index, size] of sizes.entries()) {
        setting.say(`seeding a directory of ${size}`);
        await seedDirectory(system, firstDirectory + index, size);
      }
      contenders.push(await treeChanger(setting, system, system.mode, firstDirectory, sizes));
    }
    return await alternate('W6', 'ms', contenders, setting.rounds);
  },
};

/** Renames, moves and reads seeded directories in turn; they have these sizes, and numbers from `first` on. */
export async function treeChanger(
  setting: Setting,
  system: Stowage,
  name: string,
  first: number,
  sizes: readonly number[],
): Promise<Contender> {
  const parents = [first + sizes.length, first + sizes.length + 1];
  for (const parent of parents) await seedEmptyDirectory(system, parent);
  // Every change twice, so that the second undoes the first.
  const requests = parents.flatMap((parent) => sizes.flatMap((size, index) => changesOf(first + index, size, parent)));
  const count = requests.length * (setting.small ? 1 : 25);
  return requester(setting, name, system, requests, { connections: 1, count, readBytes: shortReads });
}

function changesOf(directory: number, size: number, parent: number): WireRequest[] {
  const path = `/api/directories/${seededDirectoryId(directory)}`;
  const post = (verb: string, body: unknown): WireRequest => ({
    method: 'POST',
    path: `${path}/${verb}`,
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
    expect: 200,
    label: `${verb} ${size}`,
  });
  return [
    post('rename', { name: `renamed-${directory}-${parent}` }),
    post('move', { parent_id: seededDirectoryId(parent) }),
    { method: 'GET', path, expect: 200, label: `stat ${size}` },
  ];
}
