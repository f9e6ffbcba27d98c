import type { QueryExecutorProvider } from 'kysely';
import { writeOutboxRows } from '@stowage/common/jobs/bulk';
import type { JsonObject } from '@stowage/common/jobs/job';
import { writeOutbox } from '@stowage/common/jobs/outbox';
import type { CallContext } from '@stowage/common/rpc/context';
import type { Kind } from './nodes.ts';

export type Verb = 'created' | 'renamed' | 'moved' | 'recycled' | 'restored' | 'purged';

/** Who caused a change: a user by a request, or nobody by the passing of time. */
export interface Cause {
  actor: string | null;
  requestId: string | null;
}

/** What an event tells of its node. */
export interface EventNode {
  id: string;
  kind: Kind;
  parent_id: string | null;
  name: string;
}

export function causeOf(context: CallContext): Cause {
  return { actor: context.actor?.userId ?? null, requestId: context.requestId };
}

/** Writes the event of a change of one node, in the transaction of the change. */
export async function announce(db: QueryExecutorProvider, cause: Cause, verb: Verb, node: EventNode): Promise<void> {
  await writeOutbox(db, `stowage.files.${verb}`, eventData(cause, node));
}

/** As announce, for many nodes. */
export async function announceAll(
  db: QueryExecutorProvider,
  cause: Cause,
  verb: Verb,
  nodes: readonly EventNode[],
): Promise<void> {
  await writeOutboxRows(
    db,
    `stowage.files.${verb}`,
    nodes.map((node) => eventData(cause, node)),
  );
}

/** What announce writes as the data of an event. */
export function eventData(cause: Cause, { id, kind, parent_id, name }: EventNode): JsonObject {
  return { id, kind, parent_id, name, actor: cause.actor, request_id: cause.requestId };
}
