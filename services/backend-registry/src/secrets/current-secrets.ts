import type { ReferencedSecrets } from './secret-ref.ts';
import type { SecretRefs, Secrets } from './secret-table.ts';

/** How often a Kubernetes Secret had changed when a value was taken from it. */
interface Generation {
  name: string;
  generation: number;
}

/** The secrets of a backend as they were at one moment, and whether they are those still. */
export class CurrentSecrets {
  readonly values: Secrets;
  readonly #references: ReferencedSecrets;
  /** Of each Kubernetes Secret that values came from. */
  readonly #generations: readonly Generation[];

  private constructor(values: Secrets, references: ReferencedSecrets, generations: readonly Generation[]) {
    this.values = values;
    this.#references = references;
    this.#generations = generations;
  }

  /**
   * Puts together what is sealed and what references lead to, with `changed` in the place of either. Throws `unavailable`
   * where a reference leads to nothing.
   */
  static async find(
    references: ReferencedSecrets,
    sealed: Secrets,
    refs: SecretRefs,
    changed: { secrets?: Secrets; refs?: SecretRefs },
  ): Promise<CurrentSecrets> {
    const values: Record<string, string> = { ...sealed, ...changed.secrets };
    const generations: Generation[] = [];
    for (const [field, ref] of Object.entries({ ...refs, ...changed.refs })) {
      if (Object.hasOwn(changed.secrets ?? {}, field)) continue;
      const { value, generation } = await references.valueOf(ref);
      values[field] = value;
      generations.push({ name: ref.name, generation });
    }
    return new CurrentSecrets(values, references, generations);
  }

  /** Whether no Kubernetes Secret that they came from has other values by now. */
  areCurrent(): boolean {
    return this.#generations.every(({ name, generation }) => this.#references.generationOf(name) === generation);
  }
}
