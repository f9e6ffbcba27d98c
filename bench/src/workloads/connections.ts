import { startSelectServer } from '../baselines/baseline.ts';
import { alternate } from '../measure/alternate.ts';
import type { Contender } from '../measure/alternate.ts';
import { seedDirectory, seededFileId } from '../system/seed.ts';
import { endpointOf } from './contenders.ts';
import type { Endpoint } from './contenders.ts';
import { Started } from './workload.ts';
import type { Setting, Workload } from './workload.ts';

/** What clients that stay connected cost, while 16 requests at a time go over all of their connections in turn. */
export const connections: Workload = {
  name: 'connections',
  title: 'stat over 100, 1,000 and 5,000 open connections, 16 requests at a time',
  run: async (setting) => {
    await using started = new Started(setting, 'connections');
    const counts = setting.small ? [20, 50] : [100, 1_000, 5_000];
    const contenders: Contender[] = [];
    for (const system of await started.systems()) {
      await seedDirectory(system, 20, 10);
      const path = `/api/files/${seededFileId(20, 1)}`;
      for (const count of counts) contenders.push(holder(setting, system.mode, system, path, count));
    }
    const { postgres } = setting;
    const server = await started.add(startSelectServer(postgres.url, postgres.selectText, 'pooled'));
    const endpoint = endpointOf(server, postgres.postmaster);
    for (const count of counts) contenders.push(holder(setting, 'select, pooled', endpoint, '/key-1', count));
    return await alternate('connections', 'per s', contenders, setting.rounds);
  },
};

function holder(
  { driver, small }: Setting,
  name: string,
  { port, token, processes }: Endpoint,
  path: string,
  connections: number,
): Contender {
  const request = { method: 'GET', path, expect: 200 };
  const who = token === undefined ? {} : { token };
  const count = small ? 100 : 2_000;
  return {
    name: `${name}, ${connections} open`,
    processes,
    run: () => driver.run({ kind: 'open-connections', port, ...who, connections, active: 16, request, count }),
  };
}
