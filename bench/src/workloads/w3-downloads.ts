import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { WireRequest } from '../driver/jobs.ts';
import { alternate } from '../measure/alternate.ts';
import type { Contender } from '../measure/alternate.ts';
import type { Row, Unit } from '../measure/row.ts';
import type { Stowage } from '../system/stowage.ts';
import { endpointOf, gets, longReads, mebibyte, requester, shuffled } from './contenders.ts';
import type { Endpoint, Pace } from './contenders.ts';
import { Started } from './workload.ts';
import type { Setting, Workload } from './workload.ts';

const ranges = 8;

/** W3a: every MiB is checked against its CRC-32C before it leaves. */
export const w3a: Workload = {
  name: 'W3a',
  title: '1 GiB download',
  run: (setting) => {
    const bytes = (setting.small ? 16 : 1024) * mebibyte;
    return compare(setting, { name: 'W3a', unit: 'MiB/s', files: 1, bytes }, (setting, name, endpoint, paths) =>
      requester(setting, name, endpoint, gets(paths), { connections: 1, count: 1, readBytes: longReads }),
    );
  },
};

/** W3b: many at once. */
export const w3b: Workload = {
  name: 'W3b',
  title: '16 parallel downloads of 64 MiB',
  run: (setting) => {
    const bytes = (setting.small ? 2 : 64) * mebibyte;
    const pace: Pace = { connections: 16, count: 16, readBytes: longReads };
    return compare(setting, { name: 'W3b', unit: 'MiB/s', files: 16, bytes }, (setting, name, endpoint, paths) =>
      requester(setting, name, endpoint, gets(paths), pace),
    );
  },
};

/** W3c: as a player or a parallel downloader asks. */
export const w3c: Workload = {
  name: 'W3c',
  title: '1 MiB ranges of a 1 GiB file, 8 connections',
  run: (setting) => {
    const bytes = (setting.small ? 16 : 1024) * mebibyte;
    const count = setting.small ? 32 : 1024;
    const pace: Pace = { connections: ranges, count, readBytes: longReads };
    return compare(setting, { name: 'W3c', unit: 'per s', files: 1, bytes }, (setting, name, endpoint, [path = '']) =>
      requester(setting, name, endpoint, rangesOf(path, bytes), pace),
    );
  },
};

interface Shape {
  name: string;
  unit: Unit;
  files: number;
  bytes: number;
}

type Make = (setting: Setting, name: string, endpoint: Endpoint, paths: readonly string[]) => Contender;

/** The same downloads from Stowage and from bare Node. */
async function compare(setting: Setting, shape: Shape, make: Make): Promise<Row[]> {
  await using started = new Started(setting, shape.name.toLowerCase());
  const contenders: Contender[] = [];
  for (const system of await started.systems()) {
    contenders.push(make(setting, system.mode, system, await upload(setting, system, shape)));
  }
  const server = await started.fileServer('batch');
  const paths: string[] = [];
  for (let index = 0; index < shape.files; index++) {
    await writeFile(join(server.directory, `file-${index}`), Buffer.alloc(shape.bytes, index + 1));
    paths.push(`/file-${index}`);
  }
  contenders.push(make(setting, 'node-batch', endpointOf(server), paths));
  return await alternate(shape.name, shape.unit, contenders, setting.rounds);
}

/** Uploads the files and gives the paths to download them at. */
async function upload({ driver }: Setting, { port, token }: Stowage, { name, files, bytes }: Shape): Promise<string[]> {
  const job = { kind: 'tus-file', port, token, connections: 1, bytes, patchBytes: bytes } as const;
  const paths: string[] = [];
  for (let index = 0; index < files; index++) {
    const { ids } = await driver.run({ ...job, name: `${name}-${index}` });
    paths.push(...ids.map((id) => `/api/files/${id}/download`));
  }
  return paths;
}

function rangesOf(path: string, bytes: number): WireRequest[] {
  const offsets = Array.from({ length: bytes / mebibyte }, (_, index) => index * mebibyte);
  return shuffled(offsets).map((offset) => ({
    method: 'GET',
    path,
    headers: { Range: `bytes=${offset}-${offset + mebibyte - 1}` },
    expect: 206,
  }));
}
