import type { DescService } from '@bufbuild/protobuf';
import type { Logger } from '../runtime/logger.ts';
import { noteIds } from '../runtime/spans.ts';
import { toAppError } from '../errors.ts';
import { clientFor, defaultTimeoutMs } from './contract.ts';
import type { Client, Endpoint } from './contract.ts';
import { withDeadline } from './deadline.ts';
import { publicError } from './public-error.ts';

/**
 * A client that calls an implementation in this process: same types, deadline and errors as over gRPC, no socket.
 * `find` is asked at each call, so that services may depend on each other in a circle.
 */
export function localClient<S extends DescService>(
  descriptor: S,
  find: (descriptor: DescService) => Endpoint,
  logger: Logger,
): Client<S> {
  return clientFor(descriptor, async (method, request, context, options) => {
    const name = `${descriptor.typeName}/${method.name}`;
    noteIds(request);
    try {
      return await withDeadline(context, options.timeoutMs ?? defaultTimeoutMs, name, (inner) =>
        find(descriptor).call(method, request, inner),
      );
    } catch (error) {
      throw publicError(toAppError(error), { logger, requestId: context.requestId, name });
    }
  });
}
