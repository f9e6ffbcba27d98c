import { AppError, unavailable } from '@stowage/common/errors';

/** How long a new holder waits for the one before it to stop. */
const handoverMs = 2_000;

/** The sole right to change one piece of staged content, within this process. */
export interface Claim {
  /** Aborted when somebody with a higher fence wants the content. */
  signal: AbortSignal;
  /** Says what the holder found: content up to `offset` counts; null for no content. */
  found(offset: number | null): void;
  /** Raises what counts, as content is written. */
  raise(offset: number): void;
  /** Ends the claim. */
  release(): void;
}

interface Holder {
  fence: bigint;
  abort: AbortController;
  /** Settles with true when the holder knows what counts, with false when it ended without knowing. */
  knows: Promise<boolean>;
  counted: number | null;
  ended: Promise<void>;
}

/** Fences of those that are no writers: looking gives way to all, sealing and discarding stop every writer. */
export const fences = { look: -1n, seal: 2n ** 63n, discard: 2n ** 63n + 1n } as const;

/** Who holds which staged content of one store, in this process. */
export class StagedClaims {
  readonly #holders = new Map<string, Holder>();

  /**
   * Takes the claim; stops a holder with a lower fence and waits for its end, up to 2 s.
   * Throws `locked` while somebody with a higher fence holds it, or with the same one when it is a writer's.
   * `caller` aborted aborts the claim's signal too.
   */
  async take(stagedId: string, fence: bigint, caller?: AbortSignal): Promise<Claim> {
    const patient = fence === fences.discard || fence === fences.look;
    const deadline = Date.now() + handoverMs;
    for (;;) {
      const holder = this.#holders.get(stagedId);
      if (!holder) return this.#hold(stagedId, fence, caller);
      if (holder.fence > fence || (holder.fence === fence && !patient)) throw lockedError();
      if (holder.fence < fence) holder.abort.abort(lockedError());
      if (!(await endsBefore(holder.ended, deadline))) throw lockedError();
    }
  }

  /** What counts according to the holder, null for no content; undefined when it ended before it knew. */
  async counted(stagedId: string): Promise<number | null | undefined> {
    const holder = this.#holders.get(stagedId);
    return holder && (await holder.knows) ? holder.counted : undefined;
  }

  /** Whether somebody holds it; where nobody does, a take() in the same turn of the event loop gets it at once. */
  held(stagedId: string): boolean {
    return this.#holders.has(stagedId);
  }

  #hold(stagedId: string, fence: bigint, caller?: AbortSignal): Claim {
    const abort = new AbortController();
    const onCallerGone = (): void =>
      abort.abort(unavailable('The connection broke off: ask for the offset and go on.'));
    if (caller?.aborted) onCallerGone();
    caller?.addEventListener('abort', onCallerGone, { once: true });
    const knows = Promise.withResolvers<boolean>();
    const ended = Promise.withResolvers<void>();
    const holder: Holder = { fence, abort, knows: knows.promise, counted: null, ended: ended.promise };
    this.#holders.set(stagedId, holder);
    return {
      signal: abort.signal,
      found: (offset) => {
        holder.counted = offset;
        knows.resolve(true);
      },
      raise: (offset) => {
        holder.counted = offset;
      },
      release: () => {
        caller?.removeEventListener('abort', onCallerGone);
        this.#holders.delete(stagedId);
        knows.resolve(false);
        ended.resolve();
      },
    };
  }
}

/** Somebody else writes to the same staged content. */
export function lockedError(): AppError {
  return new AppError('locked', 'Another request writes to this upload just now: ask for the offset and try again.', {
    members: { retry_after: 1 },
  });
}

async function endsBefore(ended: Promise<void>, deadline: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => resolve(false), deadline - Date.now());
  });
  try {
    return await Promise.race([ended.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}
