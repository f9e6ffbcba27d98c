import { SystemService } from '@stowage/proto/stowage/system/v1/system';
import type { Lifecycle } from '../runtime/lifecycle.ts';
import type { Service } from '../runtime/service.ts';
import { endpoint } from './contract.ts';
import type { Endpoint } from './contract.ts';

/** Answers whether this process takes work, and how what it depends on does; every service has it. */
export function systemEndpoint(lifecycle: Lifecycle, service: Pick<Service, 'dependencies'>): Endpoint {
  return endpoint(SystemService, {
    check: async () => ({
      // One that drains still answers: whoever asks through a balancer does not ask about it alone.
      ready: lifecycle.state !== 'starting',
      detail: lifecycle.state,
      dependencies: (await service.dependencies?.()) ?? [],
    }),
  });
}
