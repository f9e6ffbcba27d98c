const baseMs = 1_000;
const capMs = 15 * 60_000;

/** Exponential backoff with full jitter, in ms: anything from 0 up to base·2^(attempt-1), capped at 15 min. */
export function backoffMs(attempt: number, random: () => number = Math.random): number {
  return Math.floor(random() * Math.min(capMs, baseMs * 2 ** (attempt - 1)));
}
