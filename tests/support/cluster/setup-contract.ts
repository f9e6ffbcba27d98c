import { Release, replicated } from './release.ts';
import { leftOut } from './left-out.ts';
import { serverSettings } from './dependencies.ts';
import { urlVariable } from '../shared-system.ts';

/** A release for all contract tests, with two pods of every service, and the real servers that some of them use. */
export default async (): Promise<void> => {
  Object.assign(process.env, await serverSettings());
  const files = leftOut().map(({ file, why }) => `  ${file}: ${why}`);
  process.stderr.write(`Left out of the contract tests on a cluster:\n${files.join('\n')}\n`);
  if (process.env[urlVariable('cluster')]) return;
  const release = await Release.install({ namespace: 'stowage-contract', values: replicated(2) });
  process.env[urlVariable('cluster')] = await release.url();
};
