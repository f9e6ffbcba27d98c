import { createHash } from 'node:crypto';
import { expectStatus } from './client.ts';
import type { Client, Json } from './client.ts';

const sections = ['directories', 'files', 'blobs', 'replicas', 'backends', 'policies'] as const;
const root = '00000000-0000-7000-8000-000000000000';

/** All metadata as they are now, or as they were kept. */
export async function readDocument(admin: Client, id?: string): Promise<Json> {
  return expectStatus(await admin.get(`/api/exports/metadata${id === undefined ? '' : `?id=${id}`}`), 200).json;
}

/** The digest by the words of the contract, not by the code that writes documents. */
export function digestOf(document: Json): string {
  const hash = createHash('sha256');
  for (const section of sections) {
    hash.update(`${section}\n`);
    for (const record of document[section]) hash.update(`${canonical(record)}\n`);
  }
  return hash.digest('hex');
}

/** What an import brings back, by section and record: all but what placement, health and the import itself decide. */
export function importedRecordsOf(document: Json): Record<string, string[]> {
  const imported: Json = {
    ...document,
    blobs: document['blobs'].map((blob: Json) => ({ ...blob, delete_after: null })),
    // Whether a copy is good is found out anew.
    replicas: document['replicas'].map(({ blob_id, backend_id, key }: Json) => ({ blob_id, backend_id, key })),
    backends: document['backends'].map(({ version, updated_at, ...backend }: Json) => backend),
  };
  return Object.fromEntries(sections.map((section) => [section, imported[section].map(canonical)]));
}

/** What is wrong with a document: what it refers to and does not hold, its order, its counts, its digest, its tree. */
export function faultsOf(document: Json): string[] {
  const faults: string[] = [];
  if (digestOf(document) !== document['sha256']) faults.push('its digest is another one');
  const ids = new Map(sections.map((section) => [section, idsOf(document[section])]));
  const has = (section: (typeof sections)[number], id: string): boolean => ids.get(section)?.has(id) ?? false;
  const refer = (what: string, section: (typeof sections)[number], id: string): void => {
    if (!has(section, id)) faults.push(`${what} refers to none of the ${section}: ${id}`);
  };
  for (const section of sections) {
    if (document['counts'][section] !== document[section].length) faults.push(`the count of ${section} is wrong`);
  }
  for (const section of ['directories', 'files', 'blobs', 'backends'] as const) {
    const all = [...(ids.get(section) ?? [])];
    if (all.some((id, index) => index > 0 && id <= (all[index - 1] ?? ''))) faults.push(`${section} are not in order`);
    if (all.length !== document[section].length) faults.push(`two ${section} have one id`);
  }
  const names = new Set<string>();
  for (const node of [...document['directories'], ...document['files']]) {
    if (node.parent_id !== null) refer(node.id, 'directories', node.parent_id);
    if (node.deleted_at !== null || node.parent_id === null) continue;
    const place = `${node.parent_id}/${node.name}`;
    if (names.has(place)) faults.push(`two are ${place}`);
    names.add(place);
  }
  for (const file of document['files']) refer(file.id, 'blobs', file.blob_id);
  for (const replica of document['replicas']) {
    refer('a replica', 'blobs', replica.blob_id);
    refer('a replica', 'backends', replica.backend_id);
  }
  for (const policy of document['policies']) {
    for (const id of policy.backends) refer(`the policy ${policy.file_class}`, 'backends', id);
  }
  return [...faults, ...cyclesOf(document['directories'])];
}

function idsOf(records: readonly Json[]): Set<string> {
  return new Set(records.map(({ id }) => String(id)));
}

function cyclesOf(directories: readonly Json[]): string[] {
  const parents = new Map(directories.map(({ id, parent_id: parent }): [string, string | null] => [id, parent]));
  const sound = new Set([root]);
  const faults: string[] = [];
  for (const id of parents.keys()) {
    const path = new Set<string>();
    let place: string | null = id;
    while (place !== null && !sound.has(place) && !path.has(place)) {
      path.add(place);
      place = parents.get(place) ?? null;
    }
    if (place !== null && path.has(place)) faults.push(`${place} lies below itself`);
    else for (const passed of path) sound.add(passed);
  }
  return faults;
}

/** JSON by RFC 8785. */
function canonical(value: Json | unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const fields = Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1));
  return `{${fields.map(([name, field]) => `${JSON.stringify(name)}:${canonical(field)}`).join()}}`;
}
