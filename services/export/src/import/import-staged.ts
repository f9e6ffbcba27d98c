import type { ClientBase } from 'pg';
import { rootDirectoryId } from '@stowage/common/ids';
import { queueFullReconcile } from '@stowage/common/jobs/full-reconcile';
import type { JobMessage } from '@stowage/common/jobs/read-job';
import { holdRemovals } from '@stowage/common/jobs/removal-hold';
import { cancelJobs } from './cancel-jobs.ts';
import { dropChanges, findChanges } from './changes.ts';
import { endUploads } from './end-uploads.ts';
import { overClient } from './over-client.ts';
import { removeBackends, writeBackends } from './write-backends.ts';
import { removeBlobs, removeReplicas, writeBlobs, writeReplicas } from './write-content.ts';
import { writePolicies } from './write-policies.ts';
import { parkNodes, writeNodes } from './write-tree.ts';

const holdMs = 7 * 24 * 3_600_000;

/** What to import. */
export interface StagedImport {
  /** Of the staged tables, which hold a valid document. */
  number: number;
  /** Backends that lie where they lie here: only these keep their secrets, and may come in enabled. */
  knownBackends: readonly string[];
  /** Of the installation that the document describes; null where that is not known. */
  instanceId: string | null;
}

/**
 * Replaces all metadata by a staged document, in the caller's transaction and under its locks. What must follow is a
 * part of it: nothing is removed from backends for 7 days, and a full reconcile is queued, which it gives. Users, sessions and idempotency keys stay.
 */
export async function importStaged(client: ClientBase, staged: StagedImport): Promise<JobMessage> {
  const { number, instanceId, knownBackends } = staged;
  if (instanceId !== null) await takeIdentity(client, instanceId);
  await findChanges(client, number, knownBackends);
  // A plan of a foreign key's check, or a statement, that was made while its table was small would read all of it for a row.
  await client.query('set local enable_seqscan = off');
  await writeBackends(client, number);
  await writePolicies(client, number);
  await parkNodes(client, number);
  await removeReplicas(client, number);
  await writeBlobs(client, number);
  await writeNodes(client, number);
  await writeReplicas(client, number);
  await removeBlobs(client, number);
  await endUploads(client, number);
  await removeBackends(client, number);
  const db = overClient(client);
  await cancelJobs(db);
  await holdRemovals(db, holdMs);
  const job = await queueFullReconcile(db, { reason: 'import' });
  await dropChanges(client, number);
  return job;
}

/**
 * An installation that holds nothing yet becomes the one that the document describes, so that exports of before its loss
 * are its own. One that holds anything stays what it is.
 */
async function takeIdentity(client: ClientBase, instanceId: string): Promise<void> {
  await client.query(
    `update export.instance set id = $1 where not exists (select from catalog.nodes where id <> '${rootDirectoryId}')`,
    [instanceId],
  );
}
