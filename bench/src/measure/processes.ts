import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

/** Linux counts CPU time in these, on every architecture that Node has builds for. */
const ticksPerSecond = 100;

/** What is measured together: process trees, by their roots. */
export interface Processes {
  node: readonly number[];
  /** The postmaster, which may be a child of one of `node` and is counted apart. */
  postgres: number | null;
}

/** One process of those measured, or PostgreSQL with all its processes. */
export interface Usage {
  /** `gateway` and so on for a service, else `node`; `PostgreSQL`. */
  name: string;
  /** Since it began, with that of its children which ended. */
  cpuSeconds: number;
  /** Resident now and at most, in bytes; 0 for PostgreSQL, whose processes share most of theirs. */
  residentBytes: number;
  peakBytes: number;
}

interface Entry {
  pid: number;
  parent: number;
  ticks: number;
}

/** Reads what the processes have used so far. */
export function usageOf({ node, postgres }: Processes): Usage[] {
  const entries = readEntries();
  const database = treesOf(entries, postgres === null ? [] : [postgres], new Set());
  const own = treesOf(entries, node, new Set(database.map(({ pid }) => pid)));
  const usages = own.map((entry) => {
    const status = readText(`/proc/${entry.pid}/status`);
    return {
      name: nameOf(entry.pid),
      cpuSeconds: entry.ticks / ticksPerSecond,
      residentBytes: kilobytes(status, 'VmRSS') * 1024,
      peakBytes: kilobytes(status, 'VmHWM') * 1024,
    };
  });
  const ticks = database.reduce((sum, entry) => sum + entry.ticks, 0);
  return postgres === null
    ? usages
    : [...usages, { name: 'PostgreSQL', cpuSeconds: ticks / ticksPerSecond, residentBytes: 0, peakBytes: 0 }];
}

/** Lets the peaks begin with what the Node processes hold now. */
export function forgetPeaks({ node, postgres }: Processes): void {
  for (const { pid } of treesOf(readEntries(), node, new Set(postgres === null ? [] : [postgres]))) {
    try {
      writeFileSync(`/proc/${pid}/clear_refs`, '5');
    } catch {
      // A kernel without it: the peak is then the one since the start.
    }
  }
}

/** The parent of a process. */
export function parentOf(pid: number): number {
  const entry = entryOf(pid);
  if (!entry) throw new Error(`process ${pid} is gone`);
  return entry.parent;
}

function nameOf(pid: number): string {
  const command = readText(`/proc/${pid}/cmdline`);
  if (command.includes('launcher/src/services.ts')) return 'launcher';
  return /services\/([a-z-]+)\/src\/main\.ts/.exec(command)?.[1] ?? 'node';
}

function kilobytes(status: string, name: string): number {
  return Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1] ?? 0);
}

/** Some processes and all below them, but for `without` and what is below those. */
function treesOf(entries: readonly Entry[], roots: readonly number[], without: ReadonlySet<number>): Entry[] {
  const within = entries.filter(({ pid }) => roots.includes(pid) && !without.has(pid));
  return within.flatMap((entry) => {
    const children = entries.filter(({ parent }) => parent === entry.pid).map(({ pid }) => pid);
    return [entry, ...treesOf(entries, children, without)];
  });
}

function readEntries(): Entry[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => entryOf(Number(name)) ?? []);
}

function entryOf(pid: number): Entry | null {
  const stat = readText(`/proc/${pid}/stat`);
  // The name, in brackets, may hold anything.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  if (fields.length < 15) return null;
  const [user, system, childUser, childSystem] = fields.slice(11, 15).map(Number);
  const ticks = (user ?? 0) + (system ?? 0) + (childUser ?? 0) + (childSystem ?? 0);
  return { pid, parent: Number(fields[1]), ticks };
}

/** Processes come and go while /proc is read. */
function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
