import { Release, alone } from './cluster/release.ts';
import { startSystem, uniqueName } from './system.ts';
import type { Mode } from './system.ts';

/** What tests of any mode may know of a system of their own: those that need its processes or folders use startSystem. */
export interface OwnSystem {
  url: string;
  /** The superuser's. */
  databaseUrl: string;
  /** Stops it and removes its data. */
  close(): Promise<void>;
}

/** A system with settings of its own: processes of this machine, or a release of the chart on the cluster. */
export async function startOwnSystem(mode: Mode, settings: Record<string, string> = {}): Promise<OwnSystem> {
  if (mode !== 'cluster') return startSystem(mode, settings);
  const release = await Release.install({ namespace: uniqueName('stowage-own'), values: alone(settings) });
  return {
    url: await release.url(),
    databaseUrl: release.database.testUrl,
    close: () => release.remove(),
  };
}
