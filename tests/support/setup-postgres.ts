import { shareServers } from './share-servers.ts';
import { sharePostgres } from './shared-system.ts';

export default async (): Promise<void> => {
  await Promise.all([sharePostgres(), shareServers()]);
};
