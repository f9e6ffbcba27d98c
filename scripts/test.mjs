import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const flags = ['--disable-warning=ExperimentalWarning', '--experimental-vm-modules'];
const given = process.argv.slice(2);

/**
 * Projects one group after the other, those of a group side by side, and how many files of each run at a time: two where
 * nothing is timed and each has a database of its own. What measures runs alone; the chart's tests use what idles beside others.
 */
const tests = [{ unit: 2 }, { standalone: 1, services: 1, chart: 1 }, { attacks: 1, recovery: 1 }];
const faults = [{ faults: 2 }, { alone: 1 }];

/** Runs jest; whether all went well. */
async function run(more) {
  const jest = ['node_modules/jest/bin/jest.js', '--forceExit', ...more, ...given];
  const child = spawn(process.execPath, [...flags, ...jest], { cwd: root, stdio: 'inherit' });
  const [code] = await once(child, 'exit');
  return code === 0;
}

function runProject([project, workers]) {
  return run(['--passWithNoTests', `--maxWorkers=${workers}`, `--selectProjects=${project}`]);
}

async function runAll(groups) {
  let passed = true;
  for (const group of groups) {
    const results = await Promise.all(Object.entries(group).map(runProject));
    passed = passed && results.every(Boolean);
  }
  return passed;
}

const isChosen = given.some((argument) => /^--selectProjects\b/.test(argument));
const groups = given.includes('--config=jest.faults.config.mjs') ? faults : tests;
process.exitCode = (isChosen ? await run(['--runInBand']) : await runAll(groups)) ? 0 : 1;
