import { counter, durationHistogram } from '@stowage/common/runtime/metrics';

const slowest = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

const durations = durationHistogram(
  'stowage_http_request_duration_seconds',
  'Requests from clients, to the last byte of the answer.',
  slowest,
);
const content = counter('stowage_content_bytes_total', 'Bytes of content that clients sent, and were sent.', [
  { direction: 'in' },
  { direction: 'out' },
]);
const refused = counter('stowage_http_requests_refused_total', 'Requests that were told to come back later, unread.', [
  {},
]);

/** Counts and times a request; `route` is its template, null where the address is none. */
export function recordRequest(route: string | null, method: string, status: number, durationMs: number): void {
  const labels = { route: route ?? 'none', method, status: `${Math.floor(status / 100)}xx` };
  durations.record(durationMs / 1_000, labels);
}

/** Counts a request that was refused because too many wait. */
export function recordRefusal(): void {
  refused.add(1);
}

/** Counts bytes of uploads that were taken in. */
export function recordReceived(bytes: bigint): void {
  if (bytes > 0n) content.add(Number(bytes), { direction: 'in' });
}

/** Counts bytes of files that were sent. */
export function recordSent(bytes: number): void {
  content.add(bytes, { direction: 'out' });
}
