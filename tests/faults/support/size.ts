/** Whether this run is as large as the promises, not only as CI has time for. */
export const full = process.env['STOWAGE_FAULTS'] === 'full';

/** How many of something this run does. */
export function sized(inCi: number, inFull: number): number {
  return full ? inFull : inCi;
}

/** For whoever runs it: the figures, on stderr. */
export function report(what: string, figures: Record<string, unknown>): void {
  process.stderr.write(`${what}: ${JSON.stringify(figures)}\n`);
}
