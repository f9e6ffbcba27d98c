import * as launcher from '@stowage/launcher/free-ports';
import type { PortRange } from '@stowage/launcher/free-ports';

/** Apart from what launchers choose: one of those would take the port of a system that a test has stopped and starts again. */
const all: PortRange = { from: 20_000, below: 32_700 };
/** More than one call ever asks for. */
const windowSize = 100;
const windows = Math.floor((all.below - all.from) / windowSize);
/** Another one for each call, so that calls side by side never give the same; runs side by side begin at different ones. */
let next = (process.pid * 17) % windows;

/** `count` ports of loopback that nothing listens on now, no two the same. */
export async function freePorts(count: number): Promise<number[]> {
  return launcher.freePorts(count, nextWindow());
}

/** One such port. */
export async function freePort(): Promise<number> {
  return launcher.freePort(nextWindow());
}

function nextWindow(): PortRange {
  const from = all.from + next * windowSize;
  next = (next + 1) % windows;
  return { from, below: from + windowSize };
}
