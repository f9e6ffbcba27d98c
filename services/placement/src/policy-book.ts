import type { BlobToPlan } from './planner/plan-blob.ts';
import type { WantedCopies } from './planner/facts.ts';
import { defaultClass } from './policies.ts';
import type { BlobFacts } from './reconcile/executor.ts';

/** The policies in force, by class. */
export class PolicyBook {
  readonly #policies: ReadonlyMap<string, WantedCopies>;

  constructor(policies: readonly (WantedCopies & { fileClass: string })[]) {
    this.#policies = new Map(policies.map((policy) => [policy.fileClass, policy]));
  }

  /** The class whose policy governs a class. */
  governing(fileClass: string): string {
    return this.#policies.has(fileClass) ? fileClass : defaultClass;
  }

  /** The classes that have a policy of their own, and the default one. */
  get classes(): string[] {
    return [...this.#policies.keys()];
  }

  /** What the planner is to be asked for a blob. Before there is a default policy, nothing is wanted anywhere. */
  toPlan({ fileClasses, replicas }: Pick<BlobFacts, 'fileClasses'> & Pick<BlobToPlan, 'replicas'>): BlobToPlan {
    const governing = new Set(fileClasses.map((fileClass) => this.governing(fileClass)));
    const policies = [...governing].flatMap((fileClass) => this.#policies.get(fileClass) ?? []);
    return { policies, replicas };
  }
}
