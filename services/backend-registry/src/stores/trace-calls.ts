import type { S3Client } from '@aws-sdk/client-s3';
import { inCallSpan } from './store-span.ts';

/** Has each request of a client traced. */
export function traceCalls(client: S3Client): void {
  client.middlewareStack.add(
    (next) => async (args) => {
      const { request } = args;
      if (!isRequest(request)) return next(args);
      return inCallSpan(
        request.method,
        request,
        () => next(args),
        ({ response }) => statusOf(response),
      );
    },
    // The last before the request leaves: once for each that is sent.
    { step: 'deserialize', name: 'traceCalls', priority: 'low' },
  );
}

function isRequest(request: unknown): request is { method: string; hostname: string; port?: number } {
  if (typeof request !== 'object' || request === null) return false;
  return 'method' in request && typeof request.method === 'string' && 'hostname' in request;
}

function statusOf(response: unknown): number | undefined {
  if (typeof response !== 'object' || response === null || !('statusCode' in response)) return undefined;
  return typeof response.statusCode === 'number' ? response.statusCode : undefined;
}
