import { endServers } from './share-servers.ts';
import { endShared } from './shared-system.ts';

export default async (): Promise<void> => {
  await Promise.all([endShared(), endServers()]);
};
