import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { alternate } from '../measure/alternate.ts';
import type { Contender } from '../measure/alternate.ts';
import { endpointOf, gets, requester, shortReads, shuffled } from './contenders.ts';
import { Started } from './workload.ts';
import type { Workload } from './workload.ts';

const fileBytes = 10_240;

/** W4: small files, in another order than they were made in. */
export const w4: Workload = {
  name: 'W4',
  title: '10 KiB downloads of 1,000 files, 32 connections',
  run: async (setting) => {
    await using started = new Started(setting, 'w4');
    const files = setting.small ? 50 : 1_000;
    const pace = { connections: 32, count: setting.small ? 200 : 4_000, readBytes: shortReads };
    const contenders: Contender[] = [];
    for (const system of await started.systems()) {
      const { port, token } = system;
      const job = { kind: 'tus-files', port, token, connections: 8, prefix: 'small', bytes: fileBytes } as const;
      const { ids } = await setting.driver.run({ ...job, count: files });
      const paths = shuffled(ids.map((id) => `/api/files/${id}/download`));
      contenders.push(requester(setting, system.mode, system, gets(paths), pace));
    }
    const server = await started.fileServer('batch');
    const names = Array.from({ length: files }, (_, index) => `file-${index}`);
    for (const name of names) await writeFile(join(server.directory, name), Buffer.alloc(fileBytes));
    const paths = shuffled(names.map((name) => `/${name}`));
    contenders.push(requester(setting, 'node-batch', endpointOf(server), gets(paths), pace));
    return await alternate('W4', 'per s', contenders, setting.rounds);
  },
};
