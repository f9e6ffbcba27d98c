import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const flags = ['--disable-warning=ExperimentalWarning', '--experimental-vm-modules'];
const given = process.argv.slice(2);

/** Runs jest; whether all went well. */
function run(more) {
  const jest = ['node_modules/jest/bin/jest.js', '--runInBand', '--forceExit', ...more, ...given];
  const { status, signal } = spawnSync(process.execPath, [...flags, ...jest], { cwd: root, stdio: 'inherit' });
  if (signal) process.exit(1);
  return status === 0;
}

// A process for each project: jest keeps the modules of every file that it ran, and gets slower as its heap grows.
const isChosen = given.some((argument) => /^--(config|selectProjects)\b/.test(argument));
const projects = ['unit', 'standalone', 'services', 'attacks', 'recovery'];
const runs = isChosen ? [[]] : projects.map((project) => ['--passWithNoTests', `--selectProjects=${project}`]);
const failed = runs.filter((more) => !run(more));
process.exit(failed.length > 0 ? 1 : 0);
