import { create } from '@bufbuild/protobuf';
import type { DescMessage, DescMethod, DescService, Message, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import type { CallContext } from './context.ts';

/** What a service writes: one function a method of the generated descriptor. Throws AppError. */
export type Implementation<S extends DescService> = {
  [K in keyof S['method']]: (
    request: MessageShape<S['method'][K]['input']>,
    context: CallContext,
  ) => Promise<MessageInitShape<S['method'][K]['output']>>;
};

export interface CallOptions {
  /** The deadline of this call; 10 s unless told. */
  timeoutMs?: number;
}

/** What a caller has, whatever lies between: throws AppError, `unavailable` where nothing answers in time. */
export type Client<S extends DescService> = {
  [K in keyof S['method']]: (
    request: MessageInitShape<S['method'][K]['input']>,
    context: CallContext,
    options?: CallOptions,
  ) => Promise<MessageShape<S['method'][K]['output']>>;
};

export const defaultTimeoutMs = 10_000;

/** A call's path on the wire. */
export function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

/** An implementation with its types erased, so that servers can hold endpoints of all services in one list. */
export interface Endpoint {
  descriptor: DescService;
  call(method: DescMethod, request: Message, context: CallContext): Promise<Message>;
}

type ErasedMethod = (request: Message, context: CallContext) => Promise<MessageInitShape<DescMessage>>;

/** Binds an implementation to its descriptor. */
export function endpoint<S extends DescService>(descriptor: S, implementation: Implementation<S>): Endpoint {
  // The mapped type ties each name to its messages; the loop over descriptors below can't express that.
  const methods = implementation as unknown as Record<string, ErasedMethod>;
  return {
    descriptor,
    async call(method, request, context) {
      const run = methods[method.localName];
      if (!run) throw new Error(`${descriptor.typeName} has no ${method.name}`);
      return create(method.output, await run.call(implementation, request, context));
    },
  };
}

type Send = (method: DescMethod, request: Message, context: CallContext, options: CallOptions) => Promise<Message>;

/** A typed client whose every method goes through `send`. */
export function clientFor<S extends DescService>(descriptor: S, send: Send): Client<S> {
  const client: Record<string, unknown> = {};
  for (const method of descriptor.methods) {
    if (method.methodKind !== 'unary') throw new Error(`${descriptor.typeName}.${method.name} is not unary`);
    client[method.localName] = (
      request: MessageInitShape<DescMessage>,
      context: CallContext,
      options: CallOptions = {},
    ) => send(method, create(method.input, request), context, options);
  }
  // Built from the same descriptor that the type is computed from.
  return client as Client<S>;
}
