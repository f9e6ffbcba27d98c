import { lookup } from 'node:dns/promises';

/** Gives all addresses of a name; throws where there are none. */
export type Lookup = (host: string) => Promise<string[]>;

/** By the system's resolver. */
export const lookupAll: Lookup = async (host) => {
  const found = await lookup(host, { all: true });
  return found.map(({ address }) => address);
};
