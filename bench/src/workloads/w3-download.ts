import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { alternate } from '../measure/alternate.ts';
import type { Contender } from '../measure/alternate.ts';
import type { WireRequest } from '../driver/jobs.ts';
import type { Stowage } from '../system/stowage.ts';
import { Started } from './workload.ts';
import type { Setting, Workload } from './workload.ts';

const mebibyte = 2 ** 20;
const longReads = 256 * 1024;

/** W3a: every MiB is checked against its CRC-32C before it leaves. */
export const w3a: Workload = {
  name: 'W3a',
  title: '1 GiB download',
  run: async (setting) => {
    await using started = new Started(setting, 'w3a');
    const bytes = (setting.small ? 16 : 1024) * mebibyte;
    const contenders: Contender[] = [];
    for (const system of await started.systems()) {
      const path = await uploaded(setting, system, bytes);
      contenders.push(downloader(setting, system.mode, system, [path], 1));
    }
    const server = await started.fileServer('batch');
    await writeFile(join(server.directory, 'file'), Buffer.alloc(bytes));
    const processes = { node: [server.pid], postgres: null };
    contenders.push(downloader(setting, 'node-batch', { port: server.port, processes }, ['/file'], 1));
    return await alternate('W3a', 'MiB/s', contenders, setting.rounds);
  },
};

/** Uploads a file and gives the path to download it at. */
async function uploaded({ driver }: Setting, { port, token }: Stowage, bytes: number): Promise<string> {
  const load = await driver.run({
    kind: 'tus-file',
    port,
    token,
    connections: 1,
    name: 'download',
    bytes,
    patchBytes: bytes,
  });
  return `/api/files/${load.ids[0]}/download`;
}

function downloader(
  { driver }: Setting,
  name: string,
  { port, token, processes }: Pick<Stowage, 'port' | 'processes'> & { token?: string },
  paths: readonly string[],
  connections: number,
): Contender {
  const requests: WireRequest[] = paths.map((path) => ({ method: 'GET', path, expect: 200 }));
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
        count: requests.length,
        readBytes: longReads,
      }),
  };
}
