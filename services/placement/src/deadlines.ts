/** A backend that reads slower than this is taken for one that hangs. */
const slowestBytesPerMs = 256;
const marginMs = 60_000;

export const deleteTimeoutMs = 60_000;

/** Where bandwidth is limited a call waits for its turn behind others, each as long as it may be. */
const turnMs = 24 * 3_600_000;

/** What is set to longer goes off at once. */
const longestTimerMs = 2 ** 31 - 1;

/** How long reading a blob of `size` bytes from end to end, or copying it, may take. */
export type ReadTimeout = (size: bigint) => number;

/** `bandwidth` is what backend-registry moves for all at once, in bytes a second; null for no limit. */
export function readTimeout(bandwidth: number | null): ReadTimeout {
  return (size) => {
    // Of several that go on at once under a limit each has a quarter of a MiB a second or more too.
    const flowMs = Math.ceil(Number(size) / slowestBytesPerMs);
    const heldBackMs = bandwidth === null ? 0 : turnMs + flowMs;
    return Math.min(longestTimerMs, marginMs + flowMs + heldBackMs);
  };
}
