import type { CallContext } from '@stowage/common/rpc/context';
import type { KeyRing } from './key-ring.ts';

/**
 * The context with a fingerprint of the request that can't be made without a key: a body may hold a secret, and whoever
 * reads the plain hash of it in the database can try guesses. Under any key of the ring the same request is known again.
 */
export function withKeyedFingerprint(context: CallContext, keys: () => KeyRing): CallContext {
  const { idempotency, actor } = context;
  if (!idempotency) return context;
  const { route, key } = idempotency;
  const request = [actor?.userId ?? '', route, key, idempotency.fingerprint];
  const [fingerprint = '', ...earlierFingerprints] = keys().fingerprints(request);
  return { ...context, idempotency: { ...idempotency, fingerprint, earlierFingerprints } };
}
