import { kubectl } from './commands.ts';

/** What tests that died left; a namespace goes on going after the run. */
export default async (): Promise<void> => {
  if (process.env['STOWAGE_CLUSTER_KEEP'] === '1') return;
  await kubectl(['delete', 'namespace', '-l', 'stowage.dev/test=cluster', '--wait=false', '--ignore-not-found']);
};
