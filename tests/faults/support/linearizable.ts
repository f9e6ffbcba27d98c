/** One operation of a history: it took effect at one moment between its call and its return. */
export interface Operation<S> {
  call: number;
  returned: number;
  /** The state after it, or undefined where it could not have been answered so in this state. */
  apply(state: S): S | undefined;
}

/**
 * Whether the operations can be put in one order that agrees with real time and in which each is possible: the search of
 * Wing and Gong with Lowe's memory of what was tried. States are compared as strings.
 */
export function isLinearizable<S extends string>(history: readonly Operation<S>[], start: S): boolean {
  const operations = history.toSorted((a, b) => a.call - b.call);
  const tried = new Set<string>();
  const stack: Search<S>[] = [{ first: 0, beyond: [], state: start }];
  for (let search = stack.pop(); search; search = stack.pop()) {
    if (search.first === operations.length) return true;
    const key = `${search.first}:${search.beyond.join(',')}:${search.state}`;
    if (tried.has(key)) continue;
    tried.add(key);
    for (const index of possibleNext(operations, search)) {
      const state = operations[index]?.apply(search.state);
      if (state !== undefined) stack.push(advance(search, index, state));
    }
  }
  return false;
}

interface Search<S> {
  /** All before it are in the order already. */
  first: number;
  /** Those after `first` that are in the order already, ascending. */
  beyond: readonly number[];
  state: S;
}

/** Those that began before any other that is left had returned. */
function possibleNext<S>(operations: readonly Operation<S>[], { first, beyond }: Search<S>): number[] {
  const done = new Set(beyond);
  const candidates: number[] = [];
  let earliestReturn = Infinity;
  for (let index = first; index < operations.length; index += 1) {
    const operation = operations[index];
    if (!operation || operation.call > earliestReturn) break;
    if (done.has(index)) continue;
    candidates.push(index);
    earliestReturn = Math.min(earliestReturn, operation.returned);
  }
  // Last in, first out: the one that returned first is tried first.
  return candidates.sort((a, b) => (operations[b]?.returned ?? 0) - (operations[a]?.returned ?? 0));
}

function advance<S>({ first, beyond }: Search<S>, index: number, state: S): Search<S> {
  const done = [...beyond, index].sort((a, b) => a - b);
  let next = first;
  while (done[0] === next) {
    done.shift();
    next += 1;
  }
  return { first: next, beyond: done, state };
}
