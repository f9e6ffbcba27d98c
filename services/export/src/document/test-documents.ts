import { createHash } from 'node:crypto';
import { blobKey } from '@stowage/common/blob-key';
import { chunkBytes } from '@stowage/common/content-chunks';
import { rootDirectoryId } from '@stowage/common/ids';
import { canonicalJson, DocumentDigest } from './canonical.ts';
import { sectionNames } from './records.ts';
import type { RecordOf, SectionName } from './records.ts';
import { inOrder } from './sections.ts';

/** The records of a document, to be changed by a test. */
export type Records = { [S in SectionName]: RecordOf<S>[] };

/** The `n`-th id of a kind: they sort as they are numbered. */
export function testId(kind: number, n: number): string {
  return `0190000${kind}-0000-7000-8000-${n.toString(16).padStart(12, '0')}`;
}

const time = '2026-03-04T05:06:07.089Z';

/** A valid document: directories below one another, files in them, each with a blob on two backends. */
export function sampleRecords({ directories = 4, files = 6 } = {}): Records {
  const node = { created_at: time, deleted_at: null, purge_at: null, purged_at: null, updated_at: time, version: 1 };
  const size = (n: number): number => n * 700_000;
  const numbers = Array.from({ length: files }, (_, n) => n);
  const folders = Array.from({ length: directories }, (_, n) => n);
  return {
    directories: [
      { ...node, id: rootDirectoryId, name: '', parent_id: null },
      ...folders.map((n) => ({
        ...node,
        id: testId(1, n),
        name: `Ordner ${n} ö`,
        parent_id: n === 0 ? rootDirectoryId : testId(1, Math.floor((n - 1) / 2)),
      })),
    ],
    files: numbers.map((n) => ({
      ...node,
      id: testId(2, n),
      name: `report ${n}.pdf`,
      parent_id: directories === 0 ? rootDirectoryId : testId(1, n % directories),
      blob_id: testId(3, n),
      file_class: 'document',
      media_type: 'application/pdf',
      size: size(n),
    })),
    blobs: numbers.map((n) => ({
      chunk_crc32c: Buffer.alloc(Math.ceil(size(n) / chunkBytes) * 4, n).toString('base64'),
      created_at: time,
      delete_after: null,
      id: testId(3, n),
      sha256: createHash('sha256').update(String(n)).digest('hex'),
      size: size(n),
    })),
    replicas: numbers.flatMap((n) =>
      [0, 1].map((b) => ({
        backend_id: testId(4, b),
        blob_id: testId(3, n),
        created_at: time,
        key: blobKey(testId(3, n)),
        state: 'available' as const,
        verified_at: time,
      })),
    ),
    backends: sampleBackends(),
    policies: [
      {
        backends: [testId(4, 0), testId(4, 1)],
        file_class: 'default',
        replicas: 2,
        sync_replicas: 1,
        updated_at: time,
        version: 3,
      },
    ],
  };
}

function sampleBackends(): Records['backends'] {
  const backend = { created_at: time, updated_at: time, enabled: true, marked: true, version: 2 };
  return [
    {
      ...backend,
      id: testId(4, 0),
      name: 'local',
      type: 'local_directory',
      is_default: true,
      config: { root_path: '/var/lib/stowage' },
      secret_fields: [],
    },
    {
      ...backend,
      id: testId(4, 1),
      name: 'far',
      type: 's3',
      is_default: false,
      config: { bucket: 'team-files', endpoint: 'https://s3.example', region: 'eu-central-1' },
      secret_fields: ['access_key_id', 'secret_access_key'],
    },
  ];
}

/** The canonical lines of a section. */
export function linesOf(records: readonly object[]): string[] {
  return records.map((record) => canonicalJson(Object(inOrder(record))));
}

/** What a document says of itself, for these records. */
export function headOf(records: Records): Record<string, unknown> {
  const digest = new DocumentDigest();
  for (const name of sectionNames) {
    digest.section(name);
    digest.records(linesOf(records[name]));
  }
  return {
    format: 'stowage-metadata',
    format_version: 1,
    exported_at: time,
    instance_id: '2f6b5c1e-7a43-4d6b-9c0e-1a2b3c4d5e6f',
    counts: Object.fromEntries(sectionNames.map((name) => [name, records[name].length])),
    sha256: digest.hex(),
  };
}

/** A document as it is exported. */
export function documentOf(records: Records): string {
  const { counts, sha256, ...head } = headOf(records);
  const sections = sectionNames.map((name) => `"${name}":[\n${linesOf(records[name]).join(',\n')}]`);
  const tail = `"counts":${JSON.stringify(counts)},\n"sha256":${JSON.stringify(sha256)}}\n`;
  return [JSON.stringify(head).slice(0, -1), ...sections, tail].join(',\n');
}
