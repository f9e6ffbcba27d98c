import type { Client } from '../../support/client.ts';
import type { Random } from '../../support/random.ts';
import { ask } from './tree-history.ts';
import type { Event, Verb, Wish } from './tree-history.ts';

/** Few, so that clients meet; two spell the same name. */
const names = ['a', 'b', 'c', 'Caf\u00e9', 'Cafe\u0301', 'd', '\u{1f4c1}', 'e'];

/** What all clients know of. */
export interface Known {
  directories: string[];
  files: string[];
  /** What was put into the bin and may be there still. */
  binned: Wish[];
}

const verbs: readonly (readonly [Verb, number])[] = [
  ['create', 0.15],
  ['rename', 0.18],
  ['move', 0.27],
  ['delete', 0.1],
  ['restore', 0.2],
  ['read', 0.04],
  ['list', 0.06],
];

/** A directory that many work in at a time; the newest ones, and some that everybody had from the start. */
const crowd = 24;

/** Changes the tree at random, `count` times, beside others. */
export async function changeTree(
  client: Client,
  random: Random,
  known: Known,
  history: Event[],
  count: number,
): Promise<void> {
  for (let done = 0; done < count;) {
    if (random.chance(0.05)) {
      await moveIntoEachOther(client, random, known, history);
      done += 2;
    } else {
      const event = await ask(client, chooseWish(random, known), history);
      note(event, known);
      done += 1;
    }
  }
}

function note({ wish, status, json }: Event, known: Known): void {
  if (status >= 300) return;
  if (wish.verb === 'create') known.directories.push(String(json['id']));
  if (wish.verb === 'delete') known.binned.push(wish);
  if (wish.verb === 'restore') known.binned = known.binned.filter(({ id }) => id !== wish.id);
}

/** Of two such moves at once, one must be refused. */
async function moveIntoEachOther(client: Client, random: Random, known: Known, history: Event[]): Promise<void> {
  const [one, other] = [chooseDirectory(random, known), chooseDirectory(random, known)];
  const into = (id: string, parentId: string): Wish => ({ verb: 'move', kind: 'directory', id, parentId, evade: true });
  await Promise.all([ask(client, into(one, other), history), ask(client, into(other, one), history)]);
}

function chooseWish(random: Random, known: Known): Wish {
  const verb = chooseVerb(random);
  const kind = verb !== 'create' && verb !== 'list' && random.chance(0.3) ? 'file' : 'directory';
  const id = kind === 'file' ? pick(random, known.files) : chooseDirectory(random, known);
  const name = pick(random, names);
  const evade = random.chance(0.1);
  const parentId = chooseDirectory(random, known);
  switch (verb) {
    case 'create':
      return { verb, kind, id: null, parentId, name, evade };
    case 'rename':
      return { verb, kind, id, name, evade };
    case 'move':
      return { verb, kind, id, parentId, evade, ...(random.chance(0.3) ? { name } : {}) };
    case 'restore':
      return { ...chooseBinned(random, known, { verb, kind, id }), verb, evade: random.chance(0.5) };
    default:
      return { verb, kind, id };
  }
}

function chooseVerb(random: Random): Verb {
  let left = random.next();
  for (const [verb, share] of verbs) {
    left -= share;
    if (left < 0) return verb;
  }
  return 'read';
}

/** Mostly what is in the bin, so that the tree does not end up there. */
function chooseBinned(random: Random, { binned }: Known, otherwise: Wish): Wish {
  return binned.length > 0 && random.chance(0.9) ? pick(random, binned) : otherwise;
}

function chooseDirectory(random: Random, { directories }: Known): string {
  const old = random.chance(0.5);
  return pick(random, old ? directories.slice(0, crowd) : directories.slice(-crowd));
}

function pick<T>(random: Random, all: readonly T[]): T {
  const chosen = all[random.integer(0, all.length - 1)];
  if (chosen === undefined) throw new Error('there is nothing to choose from');
  return chosen;
}
