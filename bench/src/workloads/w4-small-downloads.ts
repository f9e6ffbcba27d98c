import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { alternate } from '../measure/alternate.ts';
import type { Contender } from '../measure/alternate.ts';
import type { Stowage } from '../system/stowage.ts';
import { Started } from './workload.ts';
import type { Setting, Workload } from './workload.ts';

const fileBytes = 10_240;
const connections = 32;

/** W4: small files, in another order than they were made in. */
export const w4: Workload = {
  name: 'W4',
  title: '10 KiB downloads, 32 connections',
  run: async (setting) => {
    await using started = new Started(setting, 'w4');
    const files = setting.small ? 50 : 1_000;
    const contenders: Contender[] = [];
    for (const system of await started.systems()) {
      const { port, token } = system;
      const job = { kind: 'tus-files', port, token, connections: 8, prefix: 'small', bytes: fileBytes } as const;
      const { ids } = await setting.driver.run({ ...job, count: files });
      const paths = ids.map((id) => `/api/files/${id}/download`);
      contenders.push(downloader(setting, system.mode, system, paths));
    }
    const server = await started.fileServer('batch');
    const names = Array.from({ length: files }, (_, index) => `file-${index}`);
    for (const name of names) await writeFile(join(server.directory, name), Buffer.alloc(fileBytes));
    const processes = { node: [server.pid], postgres: null };
    const paths = names.map((name) => `/${name}`);
    contenders.push(downloader(setting, 'node-batch', { port: server.port, processes }, paths));
    return await alternate('W4', 'per s', contenders, setting.rounds);
  },
};

function downloader(
  { driver, small }: Setting,
  name: string,
  { port, token, processes }: Pick<Stowage, 'port' | 'processes'> & { token?: string },
  paths: readonly string[],
): Contender {
  // A stride that shares no factor with the number of files.
  const requests = paths.map((_, index) => ({
    method: 'GET',
    path: paths[(index * 617) % paths.length] ?? '',
    expect: 200,
  }));
  return {
    name,
    processes,
    run: () =>
      driver.run({
        kind: 'requests',
        port,
        ...(token === undefined ? {} : { token }),
        connections,
        requests,
        count: small ? 200 : 6_000,
        readBytes: 16_384,
      }),
  };
}
