import { mkdir } from 'node:fs/promises';
import { measureAll } from './measure-all.ts';
import { commandOf, usage } from './options.ts';
import { compareResults } from './report/compare.ts';
import { printTargets } from './report/report.ts';
import { readResults, writeResults } from './report/results.ts';

const command = understand();
if ('compare' in command) {
  const [before, after] = await Promise.all(command.compare.map(readResults));
  if (before && after) process.stdout.write(compareResults(before, after));
} else {
  const { out } = command.measure;
  const results = await measureAll(command.measure, (text) => void process.stdout.write(text));
  // A small run measures nothing that a target could be held against.
  if (!command.measure.small) process.stdout.write(`\n${printTargets(results.rows)}`);
  if (Object.keys(results.failures).length > 0) process.exitCode = 1;
  if (out !== null) {
    await mkdir(out, { recursive: true });
    await writeResults(out, results);
    process.stdout.write(`\n${out}/report.md\n`);
  }
}

function understand(): ReturnType<typeof commandOf> {
  try {
    return commandOf(process.argv.slice(2));
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n\n${usage}`);
    process.exit(2);
  }
}
