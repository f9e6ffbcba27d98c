import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

/** Linux counts CPU time in these, on every architecture that Node has builds for. */
const ticksPerSecond = 100;

/** What is measured together: process trees, by their roots. */
export interface Processes {
  node: readonly number[];
  /** The postmaster, which may be a child of one of `node` and is counted apart. */
  postgres: number | null;
}

/** CPU seconds since the processes began, of those that ended too. */
export interface CpuTime {
  node: number;
  postgres: number;
}

interface Entry {
  pid: number;
  parent: number;
  ticks: number;
}

/** Reads the CPU time of process trees. */
export function cpuTimeOf({ node, postgres }: Processes): CpuTime {
  const entries = readEntries();
  const none = new Set<number>();
  const database = new Set(postgres === null ? [] : treeOf(entries, postgres, none));
  const own = new Set(node.flatMap((root) => treeOf(entries, root, database)));
  return { node: secondsOf(entries, own), postgres: secondsOf(entries, database) };
}

/** Lets the peaks begin with what the Node processes hold now. */
export function forgetPeaks({ node, postgres }: Processes): void {
  for (const pid of nodePids(node, postgres)) {
    try {
      writeFileSync(`/proc/${pid}/clear_refs`, '5');
    } catch {
      // A kernel without it: the peak is then the one since the start.
    }
  }
}

/** The most that the Node processes held, and hold now, each at its own moment, in bytes. */
export function residentBytesOf({ node, postgres }: Processes): { peak: number; now: number } {
  let peak = 0;
  let now = 0;
  for (const pid of nodePids(node, postgres)) {
    const status = readText(`/proc/${pid}/status`);
    peak += kilobytes(status, 'VmHWM') * 1024;
    now += kilobytes(status, 'VmRSS') * 1024;
  }
  return { peak, now };
}

/** The parent of a process. */
export function parentOf(pid: number): number {
  const entry = entryOf(pid);
  if (!entry) throw new Error(`process ${pid} is gone`);
  return entry.parent;
}

function nodePids(roots: readonly number[], postgres: number | null): Set<number> {
  const entries = readEntries();
  const database = new Set(postgres === null ? [] : [postgres]);
  return new Set(roots.flatMap((root) => treeOf(entries, root, database)));
}

function kilobytes(status: string, name: string): number {
  return Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1] ?? 0);
}

/** A process and all below it, but for `without` and what is below those. */
function treeOf(entries: readonly Entry[], root: number, without: ReadonlySet<number>): number[] {
  if (without.has(root)) return [];
  const below = entries.filter(({ parent }) => parent === root);
  return [root, ...below.flatMap(({ pid }) => treeOf(entries, pid, without))];
}

function secondsOf(entries: readonly Entry[], pids: ReadonlySet<number>): number {
  const ticks = entries.filter(({ pid }) => pids.has(pid)).reduce((sum, entry) => sum + entry.ticks, 0);
  return ticks / ticksPerSecond;
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
