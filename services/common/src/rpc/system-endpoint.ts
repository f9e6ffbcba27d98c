import { SystemService } from '@stowage/proto/stowage/system/v1/system';
import type { Lifecycle } from '../runtime/lifecycle.ts';
import { endpoint } from './contract.ts';
import type { Endpoint } from './contract.ts';

/** Answers whether this process takes work; every service has it. */
export function systemEndpoint(lifecycle: Lifecycle): Endpoint {
  return endpoint(SystemService, {
    check: async () => ({ ready: lifecycle.state === 'ready', detail: lifecycle.state }),
  });
}
