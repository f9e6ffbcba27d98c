import type { Check } from './check.ts';

const chunkBytes = 1_048_576;

/** Files, their content and its replicas, beside each other: each table is read once. */
const content: Check = {
  from: `
    (select id, blob_id, size, name from catalog.nodes where kind = 'file') n
    full join catalog.blobs b on b.id = n.blob_id
    left join (
      select blob_id, count(*) filter (where state in ('available', 'unverified')) as readable
      from catalog.replicas group by blob_id) c on c.blob_id = b.id`,
  rules: [
    {
      kind: 'file_without_blob',
      when: 'n.id is not null and b.id is null',
      id: 'n.id',
      detail: `format('The content %s of the file «%s» is not known.', n.blob_id, n.name)`,
    },
    {
      kind: 'file_size_differs',
      when: 'n.size <> b.size',
      id: 'n.id',
      detail: `format('The file «%s» has %s bytes, its content %s.', n.name, n.size, b.size)`,
    },
    {
      kind: 'blob_without_replica',
      when: 'n.id is not null and b.id is not null and c.blob_id is null',
      id: 'b.id',
      detail: `format('The content of the file «%s» (%s) lies on no backend.', n.name, n.id)`,
    },
    {
      kind: 'blob_unreadable',
      when: 'n.id is not null and c.readable = 0',
      id: 'b.id',
      detail: `format('No replica of the content of the file «%s» (%s) can be read: %s.', n.name, n.id,
        (select string_agg(distinct r.state, ', ') from catalog.replicas r where r.blob_id = b.id))`,
    },
    {
      kind: 'blob_given_up',
      when: 'n.id is not null and b.delete_after is not null',
      id: 'b.id',
      detail: `format('The content of the file «%s» (%s) is to be removed after %s.', n.name, n.id, b.delete_after)`,
    },
    {
      kind: 'blob_unused',
      when: 'n.id is null and b.delete_after is null',
      id: 'b.id',
      detail: `format('%s bytes of content are of no file and would never be removed.', b.size)`,
    },
    {
      kind: 'blob_without_digest',
      when: 'b.id is not null and b.sha256 is null and (b.delete_after is null or n.id is not null)',
      id: 'b.id',
      detail: `'The content has no SHA-256 to check it by.'`,
    },
    {
      kind: 'chunk_checksums',
      when: `b.sha256 is not null
        and octet_length(b.chunk_crc32c) <> (b.size / ${chunkBytes} + least(b.size % ${chunkBytes}, 1)) * 4`,
      id: 'b.id',
      detail: `format('%s bytes of content have %s bytes of checksums.', b.size, octet_length(b.chunk_crc32c))`,
    },
  ],
};

const replicas: Check = {
  from: `catalog.replicas r left join (select id from catalog.blobs) b on b.id = r.blob_id
    left join registry.backends k on k.id = r.backend_id`,
  rules: [
    {
      kind: 'replica_without_blob',
      when: 'b.id is null',
      id: 'r.blob_id',
      detail: `format('A replica on backend %s is of content that is not known.', r.backend_id)`,
    },
    {
      kind: 'replica_on_unknown_backend',
      when: 'k.id is null',
      id: 'r.blob_id',
      detail: `format('A replica lies on backend %s, which does not exist.', r.backend_id)`,
    },
    {
      kind: 'replica_key_differs',
      when: `r.key <> 'blobs/' || right(r.blob_id::text, 2) || '/' || r.blob_id::text`,
      id: 'r.blob_id',
      detail: `format('A replica on backend %s has the key «%s».', r.backend_id, left(r.key, 255))`,
    },
    {
      kind: 'replica_state',
      when: `r.state not in ('available', 'unverified', 'copying', 'corrupt', 'missing', 'removing')`,
      id: 'r.blob_id',
      detail: `format('A replica on backend %s is «%s», which means nothing.', r.backend_id, left(r.state, 255))`,
    },
  ],
};

/** What is kept of each backend's load, beside what there is. */
const usage: Check = {
  from: `
    (select backend_id, sum(replicas) as replicas, sum(bytes) as bytes from catalog.replica_counts group by 1) kept
    full join (
      select r.backend_id, count(*) as replicas, sum(b.size) as bytes
      from catalog.replicas r join catalog.blobs b on b.id = r.blob_id group by 1) counted using (backend_id)`,
  rules: [
    {
      kind: 'usage_differs',
      when: `(coalesce(kept.replicas, 0), coalesce(kept.bytes, 0)) <> (coalesce(counted.replicas, 0), coalesce(counted.bytes, 0))`,
      id: 'backend_id',
      detail: `format('The backend is said to hold %s replicas of %s bytes, and holds %s of %s.', coalesce(kept.replicas, 0),
        coalesce(kept.bytes, 0), coalesce(counted.replicas, 0), coalesce(counted.bytes, 0))`,
    },
  ],
};

export const contentChecks: readonly Check[] = [content, replicas, usage];
