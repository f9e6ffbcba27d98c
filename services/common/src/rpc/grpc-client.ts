import type { DescService, Message } from '@bufbuild/protobuf';
import { MethodOptions_IdempotencyLevel } from '@bufbuild/protobuf/wkt';
import { Client as Channel, credentials, Metadata } from '@grpc/grpc-js';
import { contextToHeaders } from './context.ts';
import { clientFor, defaultTimeoutMs } from './contract.ts';
import type { Client } from './contract.ts';
import { maxMessageBytes, methodDefinition } from './grpc-server.ts';
import { fromServiceError } from './wire-error.ts';

/**
 * Opens a channel to all addresses of `target` (host:port, or as gRPC names them: dns:///…, ipv4:a:p,b:p), in turn. Calls
 * that may be repeated are; any call is that reached no process.
 */
export function openChannel(target: string, descriptors: readonly DescService[]): Channel {
  const address = /^(dns:\/\/|ipv[46]:)/.test(target) ? target : `dns:///${target}`;
  return new Channel(address, credentials.createInsecure(), {
    'grpc.max_receive_message_length': maxMessageBytes,
    'grpc.max_send_message_length': maxMessageBytes,
    // A network that lost what was sent leaves a connection that seems to be there, for a quarter of an hour.
    'grpc.keepalive_time_ms': 5_000,
    'grpc.keepalive_timeout_ms': 3_000,
    'grpc.keepalive_permit_without_calls': 1,
    'grpc.initial_reconnect_backoff_ms': 100,
    'grpc.max_reconnect_backoff_ms': 2_000,
    // Asked when a connection ends, as those do whose server stops or that are half a minute old.
    'grpc.dns_min_time_between_resolutions_ms': 1_000,
    'grpc.service_config_disable_resolution': 1,
    'grpc.service_config': JSON.stringify({
      loadBalancingConfig: [{ round_robin: {} }],
      methodConfig: [{ name: repeatableMethods(descriptors), retryPolicy }],
    }),
  });
}

const retryPolicy = {
  maxAttempts: 3,
  initialBackoff: '0.05s',
  maxBackoff: '0.5s',
  backoffMultiplier: 2,
  retryableStatusCodes: ['UNAVAILABLE'],
};

function repeatableMethods(descriptors: readonly DescService[]): { service: string; method: string }[] {
  return descriptors.flatMap((descriptor) =>
    descriptor.methods
      .filter((method) => method.idempotency !== MethodOptions_IdempotencyLevel.IDEMPOTENCY_UNKNOWN)
      .map((method) => ({ service: descriptor.typeName, method: method.name })),
  );
}

/** A typed client over a channel. */
export function grpcClient<S extends DescService>(descriptor: S, channel: () => Channel): Client<S> {
  return clientFor(descriptor, (method, request, context, options) => {
    const definition = methodDefinition(method);
    const metadata = new Metadata();
    for (const [name, value] of Object.entries(contextToHeaders(context))) metadata.set(name, value);
    return new Promise<Message>((resolve, reject) => {
      const call = channel().makeUnaryRequest(
        definition.path,
        definition.requestSerialize,
        definition.responseDeserialize,
        request,
        metadata,
        { deadline: Date.now() + (options.timeoutMs ?? defaultTimeoutMs) },
        (error, response) => {
          context.signal.removeEventListener('abort', cancel);
          if (error) reject(fromServiceError(error, definition.path.slice(1)));
          else if (response) resolve(response);
          else reject(new Error(`${definition.path} answered nothing`));
        },
      );
      const cancel = (): void => call.cancel();
      context.signal.addEventListener('abort', cancel, { once: true });
      if (context.signal.aborted) cancel();
    });
  });
}
