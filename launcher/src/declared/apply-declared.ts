import { ApiRefusal } from './api-client.ts';
import type { ApiClient } from './api-client.ts';
import { applyBackend } from './apply-backends.ts';
import type { Tell } from './apply-backends.ts';
import { applyPolicy } from './apply-policies.ts';
import type { Declared } from './declared-file.ts';

/** How many items were as declared already, were changed, and could not be made so. */
export interface Outcome {
  unchanged: number;
  changed: number;
  refused: number;
}

/** Others change backends too: what was read is read again so often. */
const attempts = 5;

/**
 * Makes all that is declared so, backends first, and leaves all else alone. Goes on after a refusal, of which `print` hears
 * as of every change, a line each. Throws what is no refusal: the API can't be reached any more.
 */
export async function applyDeclared(
  api: ApiClient,
  declared: Declared,
  print: (line: string) => void,
): Promise<Outcome> {
  const outcome = { unchanged: 0, changed: 0, refused: 0 };
  const each = async (what: string, apply: (tell: Tell) => Promise<void>): Promise<void> => {
    let told = 0;
    const tell: Tell = (change) => {
      told += 1;
      print(`${what} ${change}`);
    };
    try {
      await again(() => apply(tell));
      outcome[told > 0 ? 'changed' : 'unchanged'] += 1;
    } catch (error) {
      if (!(error instanceof ApiRefusal)) throw error;
      outcome.refused += 1;
      print(`${what} was refused: ${error.message}`);
    }
  };
  for (const backend of declared.backends) {
    await each(`backend ${JSON.stringify(backend.name)}`, (tell) => applyBackend(api, backend, tell));
  }
  for (const policy of declared.policies) {
    await each(`policy ${JSON.stringify(policy.fileClass)}`, (tell) => applyPolicy(api, policy, tell));
  }
  return outcome;
}

/** Reads and writes anew where someone else changed the item in between. */
async function again(work: () => Promise<void>): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof ApiRefusal) || error.status !== 412 || attempt === attempts) throw error;
    }
  }
}
