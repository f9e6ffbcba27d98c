import { mkdir, rm } from 'node:fs/promises';
import type { FileBaseline } from '../baselines/baseline.ts';
import type { Receiving } from '../baselines/receive.ts';
import { alternate } from '../measure/alternate.ts';
import type { Contender } from '../measure/alternate.ts';
import type { Stowage } from '../system/stowage.ts';
import { endpointOf, requestsJob, shortReads } from './contenders.ts';
import { Started } from './workload.ts';
import type { Setting, Workload } from './workload.ts';

const fileBytes = 10_240;
const connections = 16;

/** W2: small files, each until the answer that promises it. */
export const w2: Workload = {
  name: 'W2',
  title: '2,000 files of 10 KiB by tus (creation with the bytes, finalize), 16 at a time',
  run: async (setting) => {
    await using started = new Started(setting, 'w2');
    const count = setting.small ? 60 : 2_000;
    const contenders: Contender[] = [];
    for (const system of await started.systems()) contenders.push(uploader(setting, system, count));
    for (const mode of ['sha', 'fsync'] as const) {
      contenders.push(putter(setting, mode, await started.fileServer(mode), count));
    }
    const { postgres } = setting;
    contenders.push({
      name: 'bare INSERT',
      processes: { node: [], postgres: postgres.postmaster },
      run: () =>
        setting.driver.run({
          kind: 'statements',
          url: postgres.url,
          connections,
          text: postgres.insertText,
          values: postgres.keys.map((key) => [key]),
          count: count * 5,
        }),
    });
    return await alternate('W2', 'per s', contenders, setting.rounds);
  },
};

function uploader({ driver }: Setting, { mode, port, token, processes }: Stowage, count: number): Contender {
  const job = { kind: 'tus-files', port, token, connections, bytes: fileBytes } as const;
  return {
    name: mode,
    processes,
    run: (round) => driver.run({ ...job, prefix: `round-${round}`, count: round < 0 ? Math.ceil(count / 5) : count }),
  };
}

function putter({ driver }: Setting, mode: Receiving, server: FileBaseline, count: number): Contender {
  const endpoint = endpointOf(server);
  const requests = Array.from({ length: count }, (_, index) => ({
    method: 'PUT',
    path: `/file-${index}`,
    body: fileBytes,
    expect: 201,
  }));
  return {
    name: `node-${mode}`,
    processes: endpoint.processes,
    run: () => driver.run(requestsJob(endpoint, requests, { connections, count, readBytes: shortReads })),
    after: async () => {
      await rm(server.directory, { recursive: true });
      await mkdir(server.directory);
    },
  };
}
