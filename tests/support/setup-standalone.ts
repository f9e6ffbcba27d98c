import { shareServers } from './share-servers.ts';
import { shareSystem } from './shared-system.ts';

export default async (): Promise<void> => {
  await Promise.all([shareSystem('standalone'), shareServers()]);
};
