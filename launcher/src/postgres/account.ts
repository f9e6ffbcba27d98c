import { stat } from 'node:fs/promises';
import path from 'node:path';

/** The user that PostgreSQL runs as. */
export interface Account {
  readonly uid: number;
  readonly gid: number;
}

// PostgreSQL refuses to run as root. This one exists everywhere (initdb looks for a passwd entry).
const NOBODY: Account = { uid: 65534, gid: 65534 };

/** Whether this process runs as root, so that PostgreSQL has to run as somebody else. */
export function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/** Whom a new cluster shall belong to: nobody when this process is root, else the user of this process. */
export function accountForNewCluster(): Account {
  const uid = process.getuid?.();
  const gid = process.getgid?.();
  return uid === undefined || gid === undefined || uid === 0 ? NOBODY : { uid, gid };
}

/** The owner of an existing cluster. Throws when this process cannot run PostgreSQL as that user. */
export async function accountOfCluster(cluster: string): Promise<Account> {
  const { uid, gid } = await stat(cluster);
  if (uid === 0) throw new Error(`${cluster} belongs to root, but PostgreSQL refuses to run as root: chown -R it`);
  if (!isRoot() && uid !== process.getuid?.()) {
    throw new Error(`${cluster} belongs to the user id ${uid}: start Stowage as that user or as root`);
  }
  return { uid, gid };
}

/** What `spawn` needs to run a program as `account`; nothing when this process is that user already. */
export function spawnAs(account: Account): { uid?: number; gid?: number } {
  return isRoot() ? { uid: account.uid, gid: account.gid } : {};
}

async function allows(file: string, account: Account, bits: number): Promise<boolean> {
  const { mode, uid, gid } = await stat(file);
  let shift = 0;
  if (uid === account.uid) shift = 6;
  else if (gid === account.gid) shift = 3;
  return ((mode >> shift) & bits) === bits;
}

/**
 * Whether `account` can pass through the folder `directory` and all folders above it.
 * Looks at the permission bits only when this process is root; else `account` is its own user, who got here anyway.
 */
export async function canTraverse(directory: string, account: Account): Promise<boolean> {
  if (!isRoot()) return true;
  for (let current = directory; ; current = path.dirname(current)) {
    if (!(await allows(current, account, 0o1))) return false;
    if (current === path.dirname(current)) return true;
  }
}

/** Whether `account` can run the program `file`. */
export async function canRun(file: string, account: Account): Promise<boolean> {
  return !isRoot() || ((await allows(file, account, 0o5)) && (await canTraverse(path.dirname(file), account)));
}
