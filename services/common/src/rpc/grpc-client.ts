import type { DescService, Message } from '@bufbuild/protobuf';
import { MethodOptions_IdempotencyLevel } from '@bufbuild/protobuf/wkt';
import { Client as Channel, credentials, Metadata } from '@grpc/grpc-js';
import type { PeerChannelCredentials } from '../tls/grpc-credentials.ts';
import { contextToHeaders } from './context.ts';
import { clientFor, defaultTimeoutMs } from './contract.ts';
import type { Client } from './contract.ts';
import { maxMessageBytes, methodDefinition } from './grpc-server.ts';
import type { ServiceChannel } from './service-channel.ts';
import { fromServiceError } from './wire-error.ts';

/**
 * Opens a channel to all addresses of `target` (host:port, or as gRPC names them: ipv4:a:p,b:p), in turn. Calls that may
 * be repeated are; any call is that reached no process.
 */
export function openChannel(
  target: string,
  descriptors: readonly DescService[],
  peer: PeerChannelCredentials | null,
): Channel {
  return new Channel(target, peer ?? credentials.createInsecure(), {
    ...(peer ? { 'grpc.ssl_target_name_override': peer.serverName } : {}),
    'grpc.max_receive_message_length': maxMessageBytes,
    'grpc.max_send_message_length': maxMessageBytes,
    // A network that lost what was sent leaves a connection that seems to be there, for a quarter of an hour.
    'grpc.keepalive_time_ms': 5_000,
    'grpc.keepalive_timeout_ms': 3_000,
    'grpc.keepalive_permit_without_calls': 1,
    'grpc.initial_reconnect_backoff_ms': 100,
    'grpc.max_reconnect_backoff_ms': 2_000,
    // A channel that takes the place of another is to have connections of its own.
    'grpc.use_local_subchannel_pool': 1,
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

/** A typed client over the way to a service. */
export function grpcClient<S extends DescService>(descriptor: S, service: ServiceChannel): Client<S> {
  return clientFor(descriptor, async (method, request, context, options) => {
    const definition = methodDefinition(method);
    const metadata = new Metadata();
    for (const [name, value] of Object.entries(contextToHeaders(context))) metadata.set(name, value);
    const call = (channel: Channel): Promise<Message> =>
      new Promise((resolve, reject) => {
        const { signal } = context;
        const made = channel.makeUnaryRequest(
          definition.path,
          definition.requestSerialize,
          definition.responseDeserialize,
          request,
          metadata,
          { deadline: Date.now() + (options.timeoutMs ?? defaultTimeoutMs) },
          (error, response) => {
            signal.removeEventListener('abort', cancel);
            if (error) reject(fromServiceError(error, definition.path.slice(1)));
            else if (response) resolve(response);
            else reject(new Error(`${definition.path} answered nothing`));
          },
        );
        const cancel = (): void => made.cancel();
        signal.addEventListener('abort', cancel, { once: true });
        if (signal.aborted) cancel();
      });
    return service.use(call);
  });
}
