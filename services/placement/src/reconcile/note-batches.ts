import type { MessageInitShape } from '@bufbuild/protobuf';
import type { CallContext } from '@stowage/common/rpc/context';
import type { Client } from '@stowage/common/rpc/contract';
import type { ReplicaNoteSchema, ReplicaService } from '@stowage/proto/stowage/catalog/v1/replica';

type ReplicaNote = MessageInitShape<typeof ReplicaNoteSchema>;

interface Waiting {
  note: ReplicaNote;
  /** Since when, in ms of a clock that nobody sets. */
  since: number;
  resolve(accepted: boolean): void;
  reject(error: unknown): void;
}

/** What one call may tell of at most. */
const batchMax = 500;

/**
 * Notes of many blobs that are worked on at once, in few calls and commits: while one call is under way, all that is to be
 * noted meanwhile gathers for the next. Whoever notes something still waits until it is committed.
 */
export class NoteBatches {
  readonly #replicas: Pick<Client<typeof ReplicaService>, 'noteReplicas'>;
  readonly #context: CallContext;
  #waiting: Waiting[] = [];
  #sending = false;

  constructor(replicas: Pick<Client<typeof ReplicaService>, 'noteReplicas'>, context: CallContext) {
    this.#replicas = replicas;
    this.#context = context;
  }

  /** Resolves when it is committed, or was refused (false). No replica may be noted again before that. */
  async note(note: ReplicaNote): Promise<boolean> {
    const { promise, resolve, reject } = Promise.withResolvers<boolean>();
    this.#waiting.push({ note, since: performance.now(), resolve, reject });
    if (!this.#sending) {
      this.#sending = true;
      // The others of this turn of the event loop come along.
      setImmediate(() => void this.#sendAll());
    }
    return promise;
  }

  async #sendAll(): Promise<void> {
    while (this.#waiting.length > 0) await this.#send(this.#waiting.splice(0, batchMax));
    this.#sending = false;
  }

  async #send(batch: readonly Waiting[]): Promise<void> {
    try {
      const now = performance.now();
      const notes = batch.map(({ note, since }) => older(note, now - since));
      const { accepted } = await this.#replicas.noteReplicas({ notes }, this.#context);
      if (accepted.length !== batch.length) throw new Error('catalog told of another number of replicas');
      batch.forEach(({ resolve }, index) => resolve(accepted[index] === true));
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
  }
}

/** The note as it is after waiting so long, in ms: what was read is that much longer ago. */
function older({ readAgoMs = 0n, ...note }: ReplicaNote, waitedMs: number): ReplicaNote {
  return { ...note, readAgoMs: readAgoMs + BigInt(Math.ceil(waitedMs)) };
}
