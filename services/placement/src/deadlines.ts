/** A backend that reads slower than this is taken for one that hangs. */
const slowestBytesPerMs = 2_048;
const marginMs = 10 * 60_000;

export const deleteTimeoutMs = 60_000;

/** How long reading a blob from end to end, or copying it, may take. */
export function readTimeoutMs(size: bigint): number {
  return marginMs + Math.ceil(Number(size) / slowestBytesPerMs);
}
