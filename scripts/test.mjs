import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const flags = ['--disable-warning=ExperimentalWarning', '--experimental-vm-modules'];
const given = process.argv.slice(2);

/** How many files of a project run at a time: two where nothing is timed and each has a database of its own. */
const tests = { unit: 2, standalone: 1, services: 1, attacks: 1, recovery: 1 };
const faults = { faults: 2, alone: 1 };

/** Runs jest; whether all went well. */
function run(more) {
  const jest = ['node_modules/jest/bin/jest.js', '--forceExit', ...more, ...given];
  const { status, signal } = spawnSync(process.execPath, [...flags, ...jest], { cwd: root, stdio: 'inherit' });
  if (signal) process.exit(1);
  return status === 0;
}

// A process for each project: jest keeps the modules of every file that it ran, and gets slower as its heap grows.
const isChosen = given.some((argument) => /^--selectProjects\b/.test(argument));
const projects = given.includes('--config=jest.faults.config.mjs') ? faults : tests;
const runs = Object.entries(projects).map(([project, workers]) => [
  '--passWithNoTests',
  `--maxWorkers=${workers}`,
  `--selectProjects=${project}`,
]);
const failed = (isChosen ? [['--runInBand']] : runs).filter((more) => !run(more));
process.exit(failed.length > 0 ? 1 : 0);
