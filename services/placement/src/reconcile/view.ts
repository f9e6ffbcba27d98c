import type { Kysely } from 'kysely';
import { query } from '@stowage/common/database/transaction';
import { removalsHeldForMs } from '@stowage/common/jobs/removal-hold';
import { loadBackends } from '../backend-standing.ts';
import { defaultClass, listPolicies } from '../policies.ts';
import { arrangementsInOrder } from '../planner/in-order.ts';
import { PolicyBook } from '../policy-book.ts';
import type { PlanLimits } from '../planner/facts.ts';
import type { Tables } from '../tables.ts';
import type { View } from './executor.ts';

/** Backends and policies as they are now. */
export async function loadView(db: Kysely<Tables>, limits: PlanLimits): Promise<View> {
  const [backends, policies, heldForMs] = await Promise.all([
    loadBackends(db),
    listPolicies(db),
    query(() => removalsHeldForMs(db)),
  ]);
  const book = new PolicyBook(policies);
  const world = { backends, limits, removalsHeld: heldForMs > 0 };
  return {
    world,
    toPlan: (blob) => book.toPlan(blob),
    inOrder: () =>
      arrangementsInOrder(world, book.classes, (fileClass, replicas) =>
        book.toPlan({ fileClasses: [fileClass], replicas }),
      ).map((one) => (one.fileClass === defaultClass ? { ...one, fileClass: '' } : one)),
  };
}

/** How old what a step goes by may be: a disabled backend, or one found sick, gets no new copy after this. */
const viewMaxAgeMs = 2_000;

/** As loadView, read again when it has become old: many blobs are worked on at once. */
export class FreshView {
  readonly #load: () => Promise<View>;
  #view: Promise<View> | null = null;
  #loadedAt = 0;

  constructor(load: () => Promise<View>) {
    this.#load = load;
  }

  async get(): Promise<View> {
    if (this.#view && performance.now() - this.#loadedAt < viewMaxAgeMs) return this.#view;
    this.#loadedAt = performance.now();
    const loading = this.#load();
    this.#view = loading;
    loading.catch(() => {
      if (this.#view === loading) this.#view = null;
    });
    return loading;
  }
}
