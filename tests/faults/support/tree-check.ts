import { isLinearizable } from './linearizable.ts';
import type { Operation } from './linearizable.ts';
import { versionsOf } from './node-versions.ts';
import type { NodeVersion } from './node-versions.ts';
import { refusals } from './tree-history.ts';
import type { Event } from './tree-history.ts';

/** What the answers of a history say, and whether they can all be true. */
export interface Verdict {
  violations: string[];
  versions: Map<string, NodeVersion[]>;
  /** How many names of directories were checked. */
  names: number;
}

/**
 * Checks that each answer is one that is promised, that each node's versions follow each other, and that for each name of
 * each directory all that was told of it (who took it, who left it, to whom it was refused, who listed it) has one order.
 */
export function checkHistory(history: readonly Event[]): Verdict {
  const violations: string[] = [];
  for (const { wish, status, json } of history) {
    const promised = status < 300 || (status === 409 && refusals[wish.verb].includes(String(json['code'])));
    if (!promised) violations.push(`${JSON.stringify(wish)} was answered with ${status} ${JSON.stringify(json)}`);
  }
  const versions = versionsOf(history, violations);
  const slots = new Map<string, Operation<string>[]>();
  addHolders(slots, versions);
  addRefusals(slots, history, versions);
  addListings(slots, history);
  for (const [slot, operations] of slots) {
    if (!isLinearizable(operations, free)) violations.push(`what was told of ${slot} has no order`);
  }
  return { violations, versions, names: slots.size };
}

/** The state of a name that nobody has; else it is the node's id. */
const free = '';

/** One name of one directory. */
function slotOf(parentId: string, name: string): string {
  return JSON.stringify([parentId, name.normalize('NFC')]);
}

function add(slots: Map<string, Operation<string>[]>, slot: string, operation: Operation<string>): void {
  const operations = slots.get(slot);
  if (operations) operations.push(operation);
  else slots.set(slot, [operation]);
}

function addHolders(slots: Map<string, Operation<string>[]>, versions: Map<string, NodeVersion[]>): void {
  for (const [id, all] of versions) {
    let held: string | null = null;
    for (const { name, parentId, recycled, call, returned } of all) {
      const next: string | null = recycled ? null : slotOf(parentId, name);
      if (next === held) continue;
      if (held !== null) add(slots, held, { call, returned, apply: (holder) => (holder === id ? free : undefined) });
      if (next !== null) add(slots, next, { call, returned, apply: (holder) => (holder === free ? id : undefined) });
      held = next;
    }
  }
}

/** A name that was refused was another's at that time. */
function addRefusals(
  slots: Map<string, Operation<string>[]>,
  history: readonly Event[],
  versions: Map<string, NodeVersion[]>,
): void {
  for (const { wish, call, returned, json } of history) {
    if (json['code'] !== 'name_conflict') continue;
    const { id } = wish;
    const known = id === null ? null : placeDuring(versions.get(id) ?? [], call, returned);
    const parentId = wish.parentId ?? known?.parentId;
    const name = wish.name ?? known?.name;
    if (parentId === undefined || name === undefined) continue;
    const apply = (holder: string): string | undefined => (holder === free || holder === id ? undefined : holder);
    add(slots, slotOf(parentId, name), { call, returned, apply });
  }
}

/** Where a node was, if it stayed there all the time. */
function placeDuring(versions: readonly NodeVersion[], from: number, to: number): NodeVersion | null {
  const possible = versions.filter(
    (version, index) => version.call <= to && (versions[index + 1]?.returned ?? Infinity) >= from,
  );
  return possible.length === 1 ? (possible[0] ?? null) : null;
}

/** A listing tells of each name of the directory who has it, or that nobody has. */
function addListings(slots: Map<string, Operation<string>[]>, history: readonly Event[]): void {
  const ofDirectory = new Map<string, string[]>();
  for (const slot of slots.keys()) {
    const [parentId, name]: string[] = JSON.parse(slot);
    ofDirectory.set(parentId ?? '', [...(ofDirectory.get(parentId ?? '') ?? []), name ?? '']);
  }
  for (const { wish, status, json, call, returned } of history) {
    if (wish.verb !== 'list' || status >= 300) continue;
    const listed = new Map<string, string>();
    for (const { name, id } of json['items']) listed.set(String(name), String(id));
    const names = new Set([...(ofDirectory.get(wish.id ?? '') ?? []), ...listed.keys()]);
    for (const name of names) {
      const seen = listed.get(name) ?? free;
      add(slots, slotOf(wish.id ?? '', name), {
        call,
        returned,
        apply: (holder) => (holder === seen ? holder : undefined),
      });
    }
  }
}
