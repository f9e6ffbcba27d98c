import type { BlobToPlan } from '../planner/plan-blob.ts';
import type { ReplicaFacts, World } from '../planner/facts.ts';
import type { Arrangement } from '../planner/in-order.ts';

/** A blob as catalog tells of it. */
export interface BlobFacts {
  id: string;
  /** The same on every backend. */
  key: string;
  /** In bytes. */
  size: bigint;
  sha256: Uint8Array;
  /** Of the files that have it; empty where none has. */
  fileClasses: string[];
  replicas: ReplicaFacts[];
}

/** How a copy went. A target that fails it, and whatever else is in its way, is thrown. */
export type CopyVerdict = 'copied' | 'source_corrupt' | 'source_missing' | 'source_unavailable';

/** What reading a replica from end to end showed. */
export type Verdict = 'available' | 'corrupt' | 'missing';

/** A fact for catalog to take, or to refuse because it is not as the plan took it to be. */
export type Note =
  /** A copy is about to be made there. */
  | { kind: 'copying'; backendId: string }
  /** It is durable. */
  | { kind: 'copied'; backendId: string }
  /** `readAgoMs`: how long ago the reading began that showed it. */
  | { kind: 'settled'; backendId: string; state: Verdict; readAgoMs: number }
  /** Its bytes may go: accepted only while all that stay are good and freshly verified. */
  | { kind: 'removing'; backendId: string; staying: readonly string[] }
  /** Its bytes are gone. */
  | { kind: 'removed'; backendId: string }
  | { kind: 'kept'; backendId: string };

/** All that carrying out a plan does to the world. Each may be repeated, and throws AppError where it can't be done now. */
export interface Executor {
  /** Copies, checking the hash of what is read; the target is replaced whole and durably, or not at all. */
  copy(blob: BlobFacts, from: string, to: string): Promise<CopyVerdict>;
  verify(blob: BlobFacts, backendId: string): Promise<Verdict>;
  /** Removes the bytes, within `withinMs` or not at all; what is gone already is success. */
  remove(blob: BlobFacts, backendId: string, withinMs?: number): Promise<void>;
  /** False where catalog refuses: the facts are not (any more) what the plan was made of. */
  note(blob: BlobFacts, note: Note): Promise<boolean>;
  /** Reads the blob anew; null where it is gone. */
  reload(blobId: string): Promise<BlobFacts | null>;
}

/** What plans go by, as it is now. */
export interface View {
  world: World;
  /** Gives the blob with the policies of its classes, as the planner wants it. */
  toPlan(blob: BlobFacts): BlobToPlan;
  /** How blobs lie for which nothing is to be done; the class is empty for all that have no policy of their own. */
  inOrder(): Arrangement[];
}
