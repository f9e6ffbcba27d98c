import fc from 'fast-check';
import type { RecordedState } from '../planner/facts.ts';
import { limits } from './simulated-world.ts';
import type { Fate, SimulatedBackend, Truth } from './simulated-world.ts';

/** How many worlds a property is tried on. */
export const runs = 5_000;
const ids = ['a', 'b', 'c', 'd', 'e'];
const hour = 3_600_000;

const recorded = fc.option(
  fc.record({
    state: fc.constantFrom<RecordedState>(
      'available',
      'available',
      'unverified',
      'copying',
      'corrupt',
      'missing',
      'removing',
    ),
    verifiedAgoMs: fc.option(fc.constantFrom(0, 2 * hour, 99 * hour)),
  }),
);
const truth = fc.constantFrom<Truth>('good', 'good', 'bad', 'absent');

/** Content that was read within the time that counts as fresh is as it was read; all else may have rotted since. */
function believed(backend: SimulatedBackend): SimulatedBackend {
  const { recorded: known } = backend;
  const fresh = known?.state === 'available' && known.verifiedAgoMs !== null && known.verifiedAgoMs <= limits.freshMs;
  if (known === null) return { ...backend, truth: 'absent' };
  return fresh ? { ...backend, truth: 'good' } : backend;
}

/** Five backends in any state, with what is recorded there and what is true. */
export const backends = fc
  .tuple(
    ...ids.map((id) =>
      fc.record({
        id: fc.constant(id),
        enabled: fc.constantFrom(true, true, true, false),
        health: fc.constantFrom<SimulatedBackend['health']>('healthy', 'healthy', 'healthy', 'unhealthy', 'unknown'),
        healthAgeMs: fc.constantFrom(0, hour, 7 * hour),
        truth,
        recorded,
      }),
    ),
  )
  .map((all) => all.map(believed));

const policy = fc
  .shuffledSubarray(ids, { minLength: 1 })
  .chain((backendIds) => fc.integer({ min: 1, max: backendIds.length }).map((replicas) => ({ backendIds, replicas })));
/** The policies of a blob's classes. */
export const policies = fc.array(policy, { minLength: 1, maxLength: 2 });
/** What befalls the first operations. */
export const fates = fc.array(
  fc.constantFrom<Fate>(
    'fine',
    'fine',
    'fine',
    'fine',
    'crash before',
    'crash after',
    'crash, done late',
    'fails',
    'fails after',
  ),
  { maxLength: 40 },
);
