import * as launcher from '@stowage/launcher/free-ports';

/** Apart from what launchers choose: one of those would take the port of a system that a test has stopped and starts again. */
const all = { from: 20_000, below: 32_768 };
const shares = 16;
const size = Math.floor((all.below - all.from) / shares);
/** Runs side by side seldom draw from the same share. */
const from = all.from + (process.pid % shares) * size;
const own = { from, below: from + size };

/** `count` ports of loopback that nothing listens on now, no two the same. */
export async function freePorts(count: number): Promise<number[]> {
  return launcher.freePorts(count, own);
}

/** One such port. */
export async function freePort(): Promise<number> {
  return launcher.freePort(own);
}
