import { createHash } from 'node:crypto';
import type { Json } from './client.ts';

export const sections = ['directories', 'files', 'blobs', 'replicas', 'backends', 'policies'] as const;

/** The digest of a metadata document by contract §9, and by nothing of the service. */
export function documentDigest(document: Json): string {
  const hash = createHash('sha256');
  for (const section of sections) {
    hash.update(`${section}\n`);
    for (const record of document[section]) hash.update(`${canonical(record)}\n`);
  }
  return hash.digest('hex');
}

/** RFC 8785, for what documents hold: keys are sorted by UTF-16 code units. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const entries = Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1));
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${canonical(item)}`).join()}}`;
}

/** What records of a document refer to that is not in it. */
export function danglingReferences(document: Json): string[] {
  const idsOf = (section: string): Set<unknown> => new Set(document[section].map((record: Json) => record['id']));
  const [directories, blobs, backends] = [idsOf('directories'), idsOf('blobs'), idsOf('backends')];
  const dangling: string[] = [];
  const need = (there: Set<unknown>, id: unknown, what: string): void => {
    if (!there.has(id)) dangling.push(`${what} ${String(id)}`);
  };
  for (const { parent_id: parentId } of document['directories'])
    if (parentId !== null) need(directories, parentId, 'directory in');
  for (const file of document['files']) {
    need(directories, file['parent_id'], 'file in');
    need(blobs, file['blob_id'], 'file of');
  }
  for (const replica of document['replicas']) {
    need(blobs, replica['blob_id'], 'replica of');
    need(backends, replica['backend_id'], 'replica on');
  }
  for (const policy of document['policies']) for (const id of policy['backends']) need(backends, id, 'policy of');
  return dangling;
}
