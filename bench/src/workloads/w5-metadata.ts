import { startSelectServer } from '../baselines/baseline.ts';
import { startBarePostgres } from '../baselines/postgres.ts';
import { alternate } from '../measure/alternate.ts';
import type { Contender, Row } from '../measure/alternate.ts';
import type { Processes } from '../measure/processes.ts';
import { seedDirectory, seededFileId } from '../system/seed.ts';
import type { Stowage } from '../system/stowage.ts';
import { Started } from './workload.ts';
import type { Setting, Workload } from './workload.ts';

const connections = 16;

/** W5, stat: the metadata of one of many files; beside it, what a point SELECT costs through bare Node. */
export const w5Stat: Workload = {
  name: 'W5-stat',
  title: 'metadata of a file, 16 connections',
  run: async (setting): Promise<Row[]> => {
    await using started = new Started(setting, 'w5-stat');
    const files = setting.small ? 200 : 10_000;
    const count = setting.small ? 200 : 6_000;
    const systems = await started.systems();
    const contenders: Contender[] = [];
    for (const system of systems) {
      await seedDirectory(system, 1, files);
      const stats = Array.from({ length: files }, (_, n) => `/api/files/${seededFileId(1, ((n * 617) % files) + 1)}`);
      contenders.push(getter(setting, system.mode, system, stats, count));
    }
    const postgres = await started.add(startBarePostgres(setting.scratch));
    for (const how of ['pooled', 'pipelined'] as const) {
      const server = await started.add(startSelectServer(postgres.url, postgres.selectText, how));
      const processes: Processes = { node: [server.pid], postgres: postgres.postmaster };
      const paths = postgres.keys.map((key) => `/${key}`);
      contenders.push(getter(setting, `select-${how}`, { port: server.port, processes }, paths, count));
    }
    contenders.push({
      name: 'bare-select',
      processes: { node: [], postgres: postgres.postmaster },
      run: () =>
        setting.driver.run({
          kind: 'statements',
          url: postgres.url,
          connections,
          text: postgres.selectText,
          values: postgres.keys.map((key) => [key]),
          count: count * 4,
        }),
    });
    return await alternate('W5-stat', 'per s', contenders, setting.rounds);
  },
};

function getter(
  { driver }: Setting,
  name: string,
  { port, token, processes }: Pick<Stowage, 'port' | 'processes'> & { token?: string },
  paths: readonly string[],
  count: number,
): Contender {
  const requests = paths.map((path) => ({ method: 'GET', path, expect: 200 }));
  const who = token === undefined ? {} : { token };
  return {
    name,
    processes,
    run: () => driver.run({ kind: 'requests', port, ...who, connections, requests, count, readBytes: 16_384 }),
  };
}
