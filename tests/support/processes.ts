import { readFile, readdir } from 'node:fs/promises';

/** The processes whose parent this is. */
export async function childrenOf(parent: number): Promise<number[]> {
  const found: number[] = [];
  for (const entry of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const stat = await readFile(`/proc/${entry}/stat`, 'utf8').catch(() => '');
    if (Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]) === parent) found.push(Number(entry));
  }
  return found;
}

/** SIGKILL to each; one that is gone already is no fault. */
export function killThem(pids: readonly number[]): void {
  for (const pid of pids) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch (error) {
      // Told by its shape: it is of another realm than a test's `Error`.
      if (!(typeof error === 'object' && error !== null && 'code' in error && error.code === 'ESRCH')) throw error;
    }
  }
}

/** Whether a process runs no more, be it that nobody has asked for its end yet. */
export async function isGone(pid: number): Promise<boolean> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => ') Z');
  return stat.includes(') Z');
}

/** The process of one service below a launcher of six. */
export async function servicePidOf(launcher: number, service: string): Promise<number> {
  for (const pid of await childrenOf(launcher)) {
    const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
    if (command.includes(`services/${service}/src/main.ts`)) return pid;
  }
  throw new Error(`no process of ${service} runs`);
}
