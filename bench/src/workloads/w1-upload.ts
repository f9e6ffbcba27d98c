import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { FileBaseline } from '../baselines/baseline.ts';
import type { Receiving } from '../baselines/receive.ts';
import { alternate } from '../measure/alternate.ts';
import type { Contender } from '../measure/alternate.ts';
import type { Stowage } from '../system/stowage.ts';
import { Started } from './workload.ts';
import type { Setting, Workload } from './workload.ts';

const mebibyte = 2 ** 20;
const baselines: readonly Receiving[] = ['shas', 'batch', 'fsync', 'crc', 'sha'];

/** W1: creation, one PATCH, finalize: until the answer that promises a durable file. */
export const w1: Workload = {
  name: 'W1',
  title: '1 GiB by tus, one PATCH',
  run: async (setting) => {
    await using started = new Started(setting, 'w1');
    const bytes = (setting.small ? 16 : 1024) * mebibyte;
    const subjects = (await started.systems()).map((system) => uploader(setting, system, bytes, bytes));
    const servers: Contender[] = [];
    for (const mode of baselines) servers.push(putter(setting, mode, await started.fileServer(mode), bytes));
    return await alternate('W1', 'MiB/s', [...subjects, ...servers], setting.rounds);
  },
};

function uploader({ driver }: Setting, system: Stowage, bytes: number, patchBytes: number): Contender {
  const { mode, port, token, processes } = system;
  return {
    name: mode,
    processes,
    run: (round) =>
      driver.run({
        kind: 'tus-file',
        port,
        token,
        connections: 1,
        name: `upload-${patchBytes}-${round}`,
        // What warms up need not be long.
        bytes: round < 0 ? bytes / 16 : bytes,
        patchBytes,
      }),
  };
}

function putter({ driver }: Setting, mode: Receiving, server: FileBaseline, bytes: number): Contender {
  return {
    name: `node-${mode}`,
    processes: { node: [server.pid], postgres: null },
    run: (round) => {
      const body = round < 0 ? bytes / 16 : bytes;
      const request = { method: 'PUT', path: `/upload`, body, expect: 201 };
      const { port } = server;
      return driver.run({ kind: 'requests', port, connections: 1, requests: [request], count: 1, readBytes: 16_384 });
    },
    // Else what was not flushed would be written during the next one's turn.
    after: () => rm(join(server.directory, 'upload')),
  };
}
