import type { Met } from './load.ts';

/** A figure that was measured, for whoever reads the output of a run; jest keeps stderr in its order. */
export function say(text: string): void {
  process.stderr.write(`  measured: ${text}\n`);
}

/** As say, of what clients met. */
export function sayMet(what: string, met: Met): void {
  const { requests, uploads, downloads, resumed, continued, failures } = met;
  say(
    `${what}: ${requests} requests, ${uploads} uploads, ${downloads} downloads, ` +
      `${resumed} times resumed, ${continued} times continued, ${failures.length} failed`,
  );
}
