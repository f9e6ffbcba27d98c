import type { MessageInitShape } from '@bufbuild/protobuf';
import type { SectionChangesSchema } from '@stowage/proto/stowage/export/v1/export';
import type { ClientBase } from 'pg';
import { sectionNames } from '../document/records.ts';
import type { SectionName } from '../document/records.ts';
import { stagedTable, stagedTables } from '../document/staged-tables.ts';
import type { StagedTable } from '../document/staged-tables.ts';
import { actionOf, joined } from './compared-columns.ts';

/** Records of one section by what an import would do to them. */
export type SectionChanges = MessageInitShape<typeof SectionChangesSchema>;

type Action = 'create' | 'update' | 'remove' | 'unchanged';

/** What an import of a staged document would do to each section, in the order of a document. */
export async function sectionChanges(client: ClientBase, number: number): Promise<SectionChanges[]> {
  const changes = new Map<SectionName, Record<Action, bigint>>(
    sectionNames.map((section) => [section, { create: 0n, update: 0n, remove: 0n, unchanged: 0n }]),
  );
  for (const table of stagedTables) {
    const { rows } = await client.query<{ section: SectionName; action: Action; count: string }>(
      `select ${sectionOf(table)} as section, ${actionOf(table)} as action, count(*)
       from ${joined(table, stagedTable(number, table))} group by 1, 2`,
    );
    for (const { section, action, count } of rows) {
      const counts = changes.get(section);
      if (counts) counts[action] = BigInt(count);
    }
  }
  return [...changes].map(([section, counts]) => ({ section, ...counts }));
}

function sectionOf(table: StagedTable): string {
  if (table !== 'nodes') return `'${table}'`;
  return `case coalesce(s.kind, l.kind) when 'file' then 'files' else 'directories' end`;
}
