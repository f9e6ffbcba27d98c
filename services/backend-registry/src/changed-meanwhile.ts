import { unavailable } from '@stowage/common/errors';

/** The backend was changed while it was looked at. */
export class ChangedMeanwhile extends Error {}

/** How often a backend is looked at again that is changed meanwhile. */
const looksMax = 5;

/** Does a look again that a change overtook. Throws `unavailable` where that happens again and again. */
export async function current<R>(look: () => Promise<R>): Promise<R> {
  for (let looks = 1; ; looks += 1) {
    try {
      return await look();
    } catch (error) {
      if (!(error instanceof ChangedMeanwhile)) throw error;
      if (looks === looksMax) throw unavailable('The backend is being changed just now: try again.', error, 1);
    }
  }
}
