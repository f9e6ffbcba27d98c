import type { Machine } from '../measure/machine.ts';
import type { Results } from './results.ts';
import { digits, printRows, tableOf } from './table.ts';
import { judge } from './targets.ts';

const notes = `## How to read it

- All figures are medians of the rounds, with the least and the most in brackets. In each round every contender runs once,
  one after the other, so that what else the machine does meets all of them alike. One more round before warms up.
- \`one\` is Stowage in one process, \`six\` the same code as six; both with the settings, the log and the authentication of
  production and an embedded PostgreSQL of their own. \`node-*\` is bare Node, \`http\` and \`fs\` only: \`batch\` gathers 1 MiB a
  write; \`fsync\` flushes before it answers, and so do the rest; \`crc\` adds CRC-32C; \`sha\` SHA-256 on the event loop; \`shas\`
  SHA-256 in a worker over shared slots of 1 MiB. \`select\` is bare Node with one prepared SELECT a request, over a pool of ten
  connections or ten pipelined ones; \`bare\` is PostgreSQL without HTTP.
- CPU is that of all processes of a contender, s per GiB or µs per operation; PostgreSQL's is told apart. Its background
  work after the last answer is not in it. RSS is the peak of the round, summed over Node processes, each at its own moment.
- The driver is a process of its own; \`driver cores\` is what it took of one core, and its own limits are the first two tables.
- Stowage starts with what \`npm start\` gives to Node. W7's first start has empty data and nothing compiled before, the
  second finds both.
- W8's \`bare PUTs\` is a process of its own that signs (SigV4, SHA-256 of the body) and sends by \`node:http\` over 16 kept
  connections, which is faster than the AWS SDK; its CPU is the S3 server's. W8's other rows run from the PUT of the policy until its
  job is done: copied, read back, committed. W9 counts RSS from before the first of two runs, without PostgreSQL's processes.
- W10 to W13 run over HTTP from the benchmark itself, which writes and reads the document as a file; \`driver cores\` is what that
  took. Each round imports into a new, empty installation; CPU is per file. The wait is until the last byte of the answer.
- Scaled down: the growth of pages is measured in one mode, as queries do not depend on it; seeded files have rows and no
  bytes on the disk; W7's \`npm ci\` runs once, with npm's cache as it is.
`;

/** The whole report, as Markdown. */
export function printReport({ machine, rounds, minutes, titles, failures, rows }: Results): string {
  const workloads = [...new Set(rows.map(({ workload }) => workload))].map((name) => {
    const own = rows.filter(({ workload }) => workload === name);
    return `### ${name}: ${titles[name] ?? ''}\n\n${printRows(own)}`;
  });
  return [
    '# Benchmark\n',
    'Written by `npm run bench`. Only ratios within one run mean something: machines like this drift by 20–40 % within an hour.\n',
    printMachine(machine, rounds, minutes),
    `## Targets\n\n${printTargets(rows)}`,
    notes,
    '## Measured\n',
    ...workloads,
    ...Object.entries(failures).map(([name, why]) => `### ${name}: failed\n\n${why}\n`),
  ].join('\n');
}

/** The verdicts as a table. */
export function printTargets(rows: Results['rows']): string {
  const lines = judge(rows).map(({ workload, aim, value, passes }) => [
    workload,
    aim,
    value === null ? 'not measured' : digits(value),
    value === null ? '' : passes ? 'pass' : '**falls short**',
  ]);
  return tableOf([['workload', 'aim', 'measured', ''], ...lines]);
}

function printMachine(machine: Machine, rounds: number, minutes: number): string {
  const sha = machine.shaExtensions ? 'with SHA extensions' : 'without SHA extensions';
  return `${machine.cores} cores of ${machine.processor} (${sha}), ${machine.memoryGiB} GiB, Linux ${machine.kernel}, ${machine.fileSystem}; \
Node ${machine.node}, PostgreSQL ${machine.postgres}; commit ${machine.commit}, ${machine.date.slice(0, 16).replace('T', ' ')} UTC; \
${rounds} rounds, ${digits(minutes)} minutes.\n`;
}
