import { createHash } from 'node:crypto';
import { readFile, realpath, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { type Account, accountForNewCluster, accountOfCluster, canTraverse } from './account.ts';
import { exists, hasCode, makeTraversable } from './files.ts';
import { findPostmaster, stopPostmaster } from './postmaster.ts';

/** Where things are kept that nobody must be able to reach when Stowage is started by root. */
export const SYSTEM_DIRECTORY = '/var/lib/stowage';

const EXPLANATION =
  'Stowage was started by root, so PostgreSQL runs as another user, who cannot pass through the folder that this file ' +
  'lies in or one above it. The database is therefore kept in the folder "home". Back it up together with this one.';

/** The folder that holds one cluster, its password and its log. All paths are absolute and without symbolic links. */
export interface Home {
  readonly directory: string;
  readonly cluster: string;
  readonly passwordFile: string;
  readonly logFile: string;
  readonly account: Account;
  /** Call it once the cluster exists: from then on a missing cluster is an error instead of a reason to make one. */
  settled(): Promise<void>;
}

interface Pointer {
  readonly home: string;
  readonly created: boolean;
}

/**
 * Decides where the cluster of `directory` lives: in there, or in /var/lib/stowage/clusters if the user that PostgreSQL
 * has to run as cannot reach it; a file `location` then says so. Creates the folder.
 * Throws when a cluster exists but cannot be used from here, rather than begin an empty one.
 */
export async function findHome(directory: string, log: (message: string) => void): Promise<Home> {
  await makeTraversable(path.resolve(directory));
  const asked = await realpath(directory);
  const pointer = await readPointer(asked);
  if (pointer !== undefined) return relocated(asked, pointer);
  if (await clusterExists(asked)) return besideData(asked, await accountOfCluster(path.join(asked, 'cluster')));
  const account = accountForNewCluster();
  if (await canTraverse(asked, account)) return homeAt(asked, account);
  const hash = createHash('sha256').update(asked).digest('hex').slice(0, 16);
  const home = path.join(SYSTEM_DIRECTORY, 'clusters', hash);
  await setAside(home, log);
  await writePointer(asked, { home, created: false });
  log(`the database of ${asked} is kept in ${home}, as PostgreSQL's user cannot reach the former`);
  return relocated(asked, { home, created: false });
}

function homeAt(directory: string, account: Account, settled: () => Promise<void> = async () => {}): Home {
  return {
    directory,
    account,
    settled,
    cluster: path.join(directory, 'cluster'),
    passwordFile: path.join(directory, 'password'),
    logFile: path.join(directory, 'postgres.log'),
  };
}

async function besideData(directory: string, account: Account): Promise<Home> {
  if (!(await canTraverse(directory, account))) {
    throw new Error(
      `the database is in ${directory}, but its user id ${account.uid} can no longer reach it: ` +
        'allow others to pass through that folder and the ones above it (chmod o+x)',
    );
  }
  return homeAt(directory, account);
}

async function relocated(asked: string, pointer: Pointer): Promise<Home> {
  const { home } = pointer;
  const file = path.join(asked, 'location');
  if (!(await clusterExists(home))) {
    if (pointer.created) {
      throw new Error(`${file} says that the database is in ${home}, but it is not there: bring it back`);
    }
    await makeTraversable(home);
  }
  const found = await clusterExists(home);
  const account = found ? await accountOfCluster(path.join(home, 'cluster')) : accountForNewCluster();
  if (!(await canTraverse(home, account))) throw new Error(`the user id ${account.uid} cannot reach ${home}`);
  return homeAt(home, account, async () => {
    if (!pointer.created) await writePointer(asked, { home, created: true });
  });
}

async function clusterExists(home: string): Promise<boolean> {
  return exists(path.join(home, 'cluster'));
}

// The data folder was deleted and begun anew, or it would have a pointer: its old database must not come back.
async function setAside(home: string, log: (message: string) => void): Promise<void> {
  if (!(await clusterExists(home))) return;
  const cluster = path.join(home, 'cluster');
  const found = await findPostmaster(cluster);
  if (found.state === 'running') await stopPostmaster(found.pid, cluster);
  const old = `${home}.old-${new Date().toISOString().replaceAll(':', '')}`;
  await rename(home, old);
  log(`moved the database of a deleted data folder from ${home} to ${old}: delete it when you do not need it`);
}

async function readPointer(asked: string): Promise<Pointer | undefined> {
  const file = path.join(asked, 'location');
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return undefined;
    throw error;
  }
  const value: unknown = JSON.parse(text);
  if (typeof value !== 'object' || value === null || !('home' in value) || typeof value.home !== 'string') {
    throw new Error(`${file} does not say where the database is`);
  }
  return { home: value.home, created: 'created' in value && value.created === true };
}

async function writePointer(asked: string, pointer: Pointer): Promise<void> {
  const file = path.join(asked, 'location');
  const text = JSON.stringify({ explanation: EXPLANATION, home: pointer.home, created: pointer.created }, null, 2);
  const temporary = `${file}.${process.pid}.new`;
  await writeFile(temporary, `${text}\n`);
  await rename(temporary, file);
}
