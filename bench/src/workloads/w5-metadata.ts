import { startSelectServer } from '../baselines/baseline.ts';
import type { BarePostgres } from '../baselines/postgres.ts';
import { alternate } from '../measure/alternate.ts';
import type { Contender } from '../measure/alternate.ts';
import { seedDirectory, seededDirectoryId, seededFileId } from '../system/seed.ts';
import { endpointOf, gets, requester, shortReads, shuffled } from './contenders.ts';
import { Started } from './workload.ts';
import type { Setting, Workload } from './workload.ts';

const connections = 16;

/** W5, stat: the metadata of one of many files; beside it, what a point SELECT costs through bare Node. */
export const w5Stat: Workload = {
  name: 'W5-stat',
  title: 'metadata of one of 10,000 files, 16 connections',
  run: async (setting) => {
    await using started = new Started(setting, 'w5-stat');
    const files = setting.small ? 200 : 10_000;
    const pace = { connections, count: setting.small ? 200 : 4_000, readBytes: shortReads };
    const contenders: Contender[] = [];
    for (const system of await started.systems()) {
      await seedDirectory(system, 1, files);
      const ids = Array.from({ length: files }, (_, index) => seededFileId(1, index + 1));
      const paths = shuffled(ids).map((id) => `/api/files/${id}`);
      contenders.push(requester(setting, system.mode, system, gets(paths), pace));
    }
    const { postgres } = setting;
    const paths = gets(postgres.keys.map((key) => `/${key}`));
    for (const how of ['pooled', 'pipelined'] as const) {
      const server = await started.add(startSelectServer(postgres.url, postgres.selectText, how));
      const endpoint = endpointOf(server, postgres.postmaster);
      contenders.push(requester(setting, `select, ${how}`, endpoint, paths, pace));
    }
    contenders.push(bareSelect(setting, postgres, pace.count * 4));
    return await alternate('W5-stat', 'per s', contenders, setting.rounds);
  },
};

/** W5, page: the first page of a directory; beside it, a SELECT of as many rows through bare Node. */
export const w5Page: Workload = {
  name: 'W5-page',
  title: 'first page of 100 of 10,000, 16 connections',
  run: async (setting) => {
    await using started = new Started(setting, 'w5-page');
    const pace = { connections, count: setting.small ? 60 : 1_200, readBytes: 65_536 };
    const contenders: Contender[] = [];
    for (const system of await started.systems()) {
      await seedDirectory(system, 2, setting.small ? 200 : 10_000);
      const path = `/api/directories/${seededDirectoryId(2)}/children?limit=100`;
      contenders.push(requester(setting, system.mode, system, gets([path]), pace));
    }
    const { postgres } = setting;
    const server = await started.add(startSelectServer(postgres.url, postgres.pageText, 'pooled'));
    const endpoint = endpointOf(server, postgres.postmaster);
    contenders.push(requester(setting, 'select, pooled', endpoint, gets(['/key-1']), pace));
    return await alternate('W5-page', 'per s', contenders, setting.rounds);
  },
};

function bareSelect({ driver }: Setting, postgres: BarePostgres, count: number): Contender {
  const values = postgres.keys.map((key) => [key]);
  const { url, selectText: text } = postgres;
  return {
    name: 'bare SELECT',
    processes: { node: [], postgres: postgres.postmaster },
    run: () => driver.run({ kind: 'statements', url, connections, text, values, count }),
  };
}
