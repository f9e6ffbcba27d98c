import type { Answer, Client, Json } from '../../support/client.ts';

/** What a client can ask of the tree. */
export type Verb = 'create' | 'rename' | 'move' | 'delete' | 'restore' | 'read' | 'list';

export interface Wish {
  verb: Verb;
  kind: 'directory' | 'file';
  /** The node; for a create null, for a list the directory. */
  id: string | null;
  /** The directory that is asked for, by create and move. */
  parentId?: string;
  /** As the client spells it. */
  name?: string;
  /** Whether a taken name is to be replaced by a free one. */
  evade?: boolean;
}

/** One request with its answer, and between which moments it took effect. */
export interface Event {
  wish: Wish;
  call: number;
  returned: number;
  status: number;
  json: Json;
}

/** Asks, and notes what was answered and when. */
export async function ask(client: Client, wish: Wish, history: Event[]): Promise<Event> {
  const call = performance.now();
  const { status, json } = await send(client, wish);
  const event = { wish, call, returned: performance.now(), status, json };
  history.push(event);
  return event;
}

function send(client: Client, wish: Wish): Promise<Answer> {
  const { verb, kind, id, parentId, name, evade } = wish;
  const at = `/api/${kind === 'directory' ? 'directories' : 'files'}/${id}`;
  const named = { ...(name === undefined ? {} : { name }), ...(evade ? { on_conflict: 'rename' } : {}) };
  const placed = kind === 'directory' ? { parent_id: parentId } : { directory_id: parentId };
  switch (verb) {
    case 'create':
      return client.post('/api/directories', { ...named, ...placed });
    case 'rename':
      return client.post(`${at}/rename`, named);
    case 'move':
      return client.post(`${at}/move`, { ...named, ...placed });
    case 'delete':
      return client.delete(at);
    case 'restore':
      return client.post(`${at}/restore`, named);
    case 'read':
      return client.get(at);
    case 'list':
      return client.get(`${at}/children?limit=1000`);
  }
}

/** The directory that a node's JSON says it is in. */
export function parentOf(json: Json): string {
  return String(json['kind'] === 'directory' ? json['parent_id'] : json['directory_id']);
}

/** What a refusal may be, by verb; anything else breaks a promise. */
export const refusals: Readonly<Record<Verb, readonly string[]>> = {
  create: ['name_conflict', 'state_conflict'],
  rename: ['name_conflict', 'state_conflict'],
  move: ['name_conflict', 'state_conflict', 'cycle'],
  delete: ['state_conflict'],
  restore: ['name_conflict', 'state_conflict', 'parent_missing'],
  read: [],
  list: [],
};
