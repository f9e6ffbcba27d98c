import { unavailable } from '@stowage/common/errors';
import { unreachable } from './connection-faults.ts';
import type { S3Connection } from './s3-connection.ts';
import { s3Error } from './s3-errors.ts';

/** A signal that is never aborted. */
export const noSignal = new AbortController().signal;

/** Runs one call under a deadline; its errors come out as s3Error makes them. */
export async function withDeadline<R>(
  limitMs: number,
  follows: AbortSignal,
  call: (signal: AbortSignal) => Promise<R>,
): Promise<R> {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(unavailable(unreachable)), limitMs);
  const signal = AbortSignal.any([late.signal, follows]);
  try {
    return await call(signal);
  } catch (error) {
    throw signal.aborted ? s3Error(signal.reason) : error;
  } finally {
    clearTimeout(timer);
  }
}

/** As withDeadline, for a call that moves no content. */
export async function shortCall<R>(
  { limits }: S3Connection,
  call: (signal: AbortSignal) => Promise<R>,
  follows: AbortSignal = noSignal,
): Promise<R> {
  return withDeadline(limits.callMs, follows, call);
}
