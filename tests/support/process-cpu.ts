import { readFile } from 'node:fs/promises';

/** A clock tick of /proc, which Linux fixes for programs at 100 a second. */
const tickMs = 10;

/** The CPU time that a process has used so far, in ms, to the nearest tick. */
export async function cpuMs(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  // After the name in brackets, which may hold anything, the state is the first field.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) * tickMs;
}
