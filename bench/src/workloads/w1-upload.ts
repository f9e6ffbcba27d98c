import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { FileBaseline } from '../baselines/baseline.ts';
import type { Receiving } from '../baselines/receive.ts';
import { alternate } from '../measure/alternate.ts';
import type { Contender } from '../measure/alternate.ts';
import type { Stowage } from '../system/stowage.ts';
import { endpointOf, mebibyte, requestsJob, shortReads } from './contenders.ts';
import { Started } from './workload.ts';
import type { Setting, Workload } from './workload.ts';

/** Beside them, what is only informative: no flush, no hash, or the hash on the event loop. */
const baselines: readonly Receiving[] = ['shas', 'batch', 'fsync', 'crc', 'sha'];

/** W1: creation, one PATCH, finalize: until the answer that promises a durable file. */
export const w1: Workload = {
  name: 'W1',
  title: '1 GiB by tus, one PATCH',
  run: async (setting) => {
    await using started = new Started(setting, 'w1');
    const bytes = (setting.small ? 16 : 1024) * mebibyte;
    const contenders: Contender[] = [];
    for (const system of await started.systems()) {
      contenders.push(uploader(setting, system.mode, system, bytes, bytes));
    }
    for (const mode of baselines) contenders.push(putter(setting, mode, await started.fileServer(mode), bytes));
    return await alternate('W1', 'MiB/s', contenders, setting.rounds);
  },
};

/** W1b: what a request of its own for every 8 MiB costs. */
export const w1b: Workload = {
  name: 'W1b',
  title: '512 MiB by tus in PATCHes of 8 MiB, beside one PATCH',
  run: async (setting) => {
    await using started = new Started(setting, 'w1b');
    const bytes = (setting.small ? 32 : 512) * mebibyte;
    const contenders: Contender[] = [];
    for (const system of await started.systems()) {
      contenders.push(uploader(setting, system.mode, system, bytes, 8 * mebibyte));
      contenders.push(uploader(setting, `${system.mode}, one PATCH`, system, bytes, bytes));
    }
    contenders.push(putter(setting, 'shas', await started.fileServer('shas'), bytes));
    return await alternate('W1b', 'MiB/s', contenders, setting.rounds);
  },
};

function uploader(
  { driver }: Setting,
  name: string,
  { port, token, processes }: Stowage,
  bytes: number,
  patchBytes: number,
): Contender {
  const job = { kind: 'tus-file', port, token, connections: 1, patchBytes } as const;
  return {
    name,
    processes,
    run: (round) =>
      // What warms up need not be long.
      driver.run({ ...job, name: `upload-${bytes}-${patchBytes}-${round}`, bytes: round < 0 ? bytes / 16 : bytes }),
  };
}

function putter({ driver }: Setting, mode: Receiving, server: FileBaseline, bytes: number): Contender {
  const endpoint = endpointOf(server);
  return {
    name: `node-${mode}`,
    processes: endpoint.processes,
    run: (round) => {
      const body = round < 0 ? bytes / 16 : bytes;
      const request = { method: 'PUT', path: '/upload', body, expect: 201 };
      return driver.run(requestsJob(endpoint, [request], { connections: 1, count: 1, readBytes: shortReads }));
    },
    // Else what was not flushed would be written during the next one's turn.
    after: () => rm(join(server.directory, 'upload')),
  };
}
