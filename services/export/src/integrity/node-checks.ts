import { nameBytesMax } from '@stowage/common/names';
import { rootDirectoryId } from '@stowage/common/ids';
import type { Check } from './check.ts';

const root = `'${rootDirectoryId}'`;
const parentIsThere = 'exists (select from catalog.nodes other where other.id = n.parent_id)';
const parentIsLost = 'n.parent_id is not null and p.id is null';

/** Nodes, one by one, beside their parents. */
const places: Check = {
  from: `catalog.nodes n left join (select id from catalog.nodes where kind = 'directory') p on p.id = n.parent_id`,
  rules: [
    {
      kind: 'node_without_parent',
      when: `${parentIsLost} and not ${parentIsThere}`,
      id: 'n.id',
      detail: `format('The %s «%s» lies in %s, which does not exist.', n.kind, n.name, n.parent_id)`,
    },
    {
      kind: 'parent_is_file',
      when: `${parentIsLost} and ${parentIsThere}`,
      id: 'n.id',
      detail: `format('The %s «%s» lies in %s, which is no directory.', n.kind, n.name, n.parent_id)`,
    },
    {
      kind: 'node_without_place',
      when: `n.parent_id is null and n.deleted_at is null and n.purged_at is null and n.id <> ${root}`,
      id: 'n.id',
      detail: `format('The %s «%s» lies in no directory and is not in the recycle bin.', n.kind, n.name)`,
    },
    {
      kind: 'root_misplaced',
      when: `n.id = ${root} and (n.parent_id is not null or n.deleted_at is not null or n.purged_at is not null or n.kind <> 'directory')`,
      id: 'n.id',
      detail: `'The root directory has a parent, is in the recycle bin, or is no directory.'`,
    },
    {
      kind: 'bin_contradiction',
      when: `(n.deleted_at is null) <> (n.purge_at is null) or n.purge_at < n.deleted_at`,
      id: 'n.id',
      detail: `format('The %s «%s» was recycled at %s and is to be purged at %s.', n.kind, n.name,
        coalesce(n.deleted_at::text, 'no time'), coalesce(n.purge_at::text, 'no time'))`,
    },
    {
      kind: 'node_fields',
      when: `(n.kind = 'file')
        <> (n.blob_id is not null and n.size is not null and n.media_type is not null and n.file_class is not null)`,
      id: 'n.id',
      detail: `format('The %s «%s» lacks what a file has, or has what only a file may have.', n.kind, n.name)`,
    },
    {
      kind: 'name_invalid',
      when: `n.id <> ${root} and (n.name in ('', '.', '..') or position('/' in n.name) > 0
        or octet_length(n.name) > ${nameBytesMax} or n.name is not nfc normalized)`,
      id: 'n.id',
      detail: `format('The name «%s» of a %s is none that a node may have, or is not in NFC.', left(n.name, 255), n.kind)`,
    },
  ],
};

/**
 * Names that two living nodes of a directory share. By a hash first, so that little is held of each; whoever shares one is
 * looked at again.
 */
const names: Check = {
  from: `(
      select n.id, n.parent_id, n.name, count(*) over (partition by n.parent_id, normalize(n.name, nfc)) as bearers
      from (
        select parent_id, hashtextextended(normalize(name, nfc), 0) as hash
        from catalog.nodes where deleted_at is null and parent_id is not null group by 1, 2 having count(*) > 1) shared
      join catalog.nodes n on n.parent_id = shared.parent_id and n.deleted_at is null
        and hashtextextended(normalize(n.name, nfc), 0) = shared.hash) n`,
  rules: [
    {
      kind: 'name_clash',
      when: 'n.bearers > 1',
      id: 'n.id',
      detail: `format('%s nodes of directory %s are named «%s».', n.bearers, n.parent_id, n.name)`,
    },
  ],
};

const noRoot: Check = {
  from: '(select) nothing',
  rules: [
    {
      kind: 'no_root',
      when: `not exists (select from catalog.nodes where id = ${root})`,
      id: root,
      detail: `'There is no root directory.'`,
    },
  ],
};

export const nodeChecks: readonly Check[] = [places, names, noRoot];
