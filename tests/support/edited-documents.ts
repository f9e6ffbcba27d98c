import type { Answer, Client, Json } from './client.ts';
import { digestOf } from './metadata-document.ts';

const sections = ['directories', 'files', 'blobs', 'replicas', 'backends', 'policies'] as const;

/** A document whose records a test has changed, with the order, the counts and the digest that it should have then. */
export function sealed(document: Json): Json {
  const edited = structuredClone(document);
  for (const section of sections) edited[section] = inOrder(section, edited[section]);
  edited['counts'] = Object.fromEntries(sections.map((section) => [section, edited[section].length]));
  edited['sha256'] = digestOf(edited);
  return edited;
}

function inOrder(section: string, records: readonly Json[]): Json[] {
  const key = (record: Json): string => {
    if (section === 'replicas') return `${record['blob_id']} ${record['backend_id']}`;
    return section === 'policies' ? record['file_class'] : record['id'];
  };
  return [...records].sort((one, other) => (key(one) < key(other) ? -1 : 1));
}

/** Sends a document to one of the routes that take one; bytes as they are. */
export function sendDocument(
  client: Client,
  route: 'validate' | 'restore-plan',
  document: Json | Uint8Array | string,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const isText = typeof document === 'string' || document instanceof Uint8Array;
  const body = isText ? Buffer.from(document) : Buffer.from(JSON.stringify(document));
  return client.call('POST', `/api/exports/metadata/${route}`, {
    headers: { 'content-type': 'application/json', ...headers },
    raw: new Uint8Array(body),
  });
}
