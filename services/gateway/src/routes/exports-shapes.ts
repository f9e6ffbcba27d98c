import type { Finding as FindingMessage, SectionCount } from '@stowage/proto/stowage/export/v1/export';
import { Type } from 'typebox';
import type { Static } from 'typebox';

/** Something about a document, and where. */
export const Finding = Type.Object({
  pointer: Type.String({ description: 'A JSON pointer (RFC 6901) into the document.' }),
  code: Type.String({ description: 'Such as `unknown_parent`; more codes may come.' }),
  detail: Type.String({ description: 'A sentence for a person.' }),
});

export function toFinding({ pointer, code, detail }: FindingMessage): Static<typeof Finding> {
  return { pointer, code, detail };
}

const Count = Type.Integer({ minimum: 0 });

/** How many records each section has. */
export const Counts = Type.Object(
  { directories: Count, files: Count, blobs: Count, replicas: Count, backends: Count, policies: Count },
  { description: 'How many records each section has.' },
);

export function toCounts(counts: readonly SectionCount[]): Static<typeof Counts> {
  const found = new Map(counts.map(({ section, count }) => [section, Number(count)]));
  const of = (section: string): number => found.get(section) ?? 0;
  return {
    directories: of('directories'),
    files: of('files'),
    blobs: of('blobs'),
    replicas: of('replicas'),
    backends: of('backends'),
    policies: of('policies'),
  };
}
