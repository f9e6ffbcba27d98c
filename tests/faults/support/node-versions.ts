import type { Json } from '../../support/client.ts';
import { parentOf } from './tree-history.ts';
import type { Event } from './tree-history.ts';

/** One version of a node: what it was, and between which moments the change that made it took effect. */
export interface NodeVersion {
  version: number;
  name: string;
  parentId: string;
  /** Whether the node is an entry of the bin itself. */
  recycled: boolean;
  call: number;
  returned: number;
}

const changing = new Set(['create', 'rename', 'move', 'delete', 'restore']);

/** The versions of each node, oldest first, as the acknowledged answers tell; adds what contradicts itself to `violations`. */
export function versionsOf(history: readonly Event[], violations: string[]): Map<string, NodeVersion[]> {
  const seen = new Map<string, Map<number, Event[]>>();
  for (const event of history) {
    if (event.status >= 300 || event.wish.verb === 'list') continue;
    const versions = seen.get(String(event.json['id'])) ?? new Map<number, Event[]>();
    seen.set(String(event.json['id']), versions);
    const version = Number(event.json['version']);
    versions.set(version, [...(versions.get(version) ?? []), event]);
  }
  const result = new Map<string, NodeVersion[]>();
  for (const [id, versions] of seen) {
    const ordered = [...versions].sort(([a], [b]) => a - b);
    checkRealTime(id, ordered, violations);
    result.set(
      id,
      ordered.map(([version, events]) => summarise(id, version, events, violations)),
    );
    if (ordered.some(([version], index) => version !== index + 1))
      violations.push(
        `${id}: of its versions, some were made by nobody: ${ordered.map(([version]) => version).join()}`,
      );
  }
  return result;
}

/** Who asked after a version was told is told that one or a later one. */
function checkRealTime(id: string, ordered: [number, Event[]][], violations: string[]): void {
  let earliest = Infinity;
  for (const [version, events] of ordered.toReversed()) {
    for (const { wish, call } of events) {
      if (call > earliest) violations.push(`${id}: a ${wish.verb} saw version ${version} after a later one was told`);
    }
    earliest = Math.min(earliest, ...events.map(({ returned }) => returned));
  }
}

function summarise(id: string, version: number, events: Event[], violations: string[]): NodeVersion {
  const places = new Set(events.map(({ json }) => JSON.stringify([json['name'], parentOf(json)])));
  if (places.size > 1) violations.push(`${id}: version ${version} is told in two ways: ${[...places].join(' and ')}`);
  const makers = events.filter((event) => mayHaveMade(event));
  const [maker] = makers;
  if (!maker) violations.push(`${id}: version ${version} was made by nobody`);
  const json: Json = (maker ?? events[0])?.json ?? {};
  return {
    version,
    name: String(json['name']),
    parentId: parentOf(json),
    recycled: maker?.wish.verb === 'delete',
    // Where several may have made it, the others found it made: it was done before any of them returned.
    call: Math.min(...makers.map(({ call }) => call)),
    returned: Math.min(...events.map(({ returned }) => returned)),
  };
}

/** Whether the answer is what the wish would have led to. */
function mayHaveMade({ wish, json }: Event): boolean {
  if (!changing.has(wish.verb)) return false;
  const named = wish.name === undefined || wish.evade || wish.name.normalize('NFC') === json['name'];
  const placed = wish.parentId === undefined || wish.parentId === parentOf(json);
  return named && placed && (json['state'] === 'recycled') === (wish.verb === 'delete');
}
