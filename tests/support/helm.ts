import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';

/** The helm of this machine: on PATH, or where ../shared/cluster keeps what it compiled; null where there is none. */
export const helm = findHelm();

function findHelm(): string | null {
  const cache = process.env['CLUSTER_CACHE'] ?? join(homedir(), '.cache/test-cluster');
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), join(cache, 'bin')];
  return folders.map((folder) => join(folder, 'helm')).find((path) => existsSync(path)) ?? null;
}
