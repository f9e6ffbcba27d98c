import { execFileSync, spawnSync } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A file system of a test's own. */
export interface Mount {
  path: string;
  /** Unmounts it, whoever still uses it, and removes its folder. */
  close(): Promise<void>;
}

/** Why no tmpfs can be mounted here; null where one can. */
export const noTmpfs: string | null = await tryMount();

async function tryMount(): Promise<string | null> {
  if (process.getuid?.() !== 0) return 'needs root';
  try {
    await (await mountTmpfs('size=1m')).close();
    return null;
  } catch (error) {
    return `mount does not work here: ${String(error).split('\n')[0] ?? ''}`;
  }
}

/** A small disk in memory; `options` as mount has them, such as `size=64m,nr_inodes=200`. */
export async function mountTmpfs(options: string): Promise<Mount> {
  const path = await mkdtemp(join(tmpdir(), 'stowage-disk-'));
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `mode=755,${options}`, 'stowage-test', path], { stdio: 'pipe' });
  } catch (error) {
    await rm(path, { recursive: true });
    throw error;
  }
  await chmod(path, 0o755);
  return {
    path,
    close: async () => {
      spawnSync('umount', ['--lazy', path]);
      await rm(path, { recursive: true, force: true });
    },
  };
}

/** A disk that can lose its power. */
export interface Image extends Mount {
  /** Power off: whatever the file system did not bring to the disk is lost, and nothing works there any more. */
  cut(): void;
  /** Power on; all users of the disk are gone by then. */
  remount(): void;
}

/** Why no power cut can be played here; null where one can. */
export async function whyNoImage(): Promise<string | null> {
  if (process.getuid?.() !== 0) return 'needs root';
  for (const tool of ['mkfs.ext4', 'losetup', 'perl']) {
    if (spawnSync('sh', ['-c', `command -v ${tool}`]).status !== 0) return `${tool} is not installed on this machine`;
  }
  try {
    const image = await mountImage(32);
    try {
      image.cut();
      image.remount();
    } finally {
      await image.close();
    }
    return null;
  } catch (error) {
    return `a loop device can not be mounted or shut down here: ${String(error).split('\n')[0] ?? ''}`;
  }
}

/** An ext4 of so many MiB, on a loop device. */
export async function mountImage(mebibytes: number): Promise<Image> {
  const folder = await mkdtemp(join(tmpdir(), 'stowage-image-'));
  const file = join(folder, 'image');
  const path = join(folder, 'disk');
  const mount = (): void => void execFileSync('mount', ['-o', 'loop', file, path], { stdio: 'pipe' });
  try {
    await chmod(folder, 0o755);
    await mkdir(path);
    execFileSync('truncate', ['-s', `${mebibytes}M`, file], { stdio: 'pipe' });
    execFileSync('mkfs.ext4', ['-q', '-F', file], { stdio: 'pipe' });
    mount();
  } catch (error) {
    await rm(folder, { recursive: true });
    throw error;
  }
  return {
    path,
    cut: () => void execFileSync('perl', ['-e', shutDown, path], { stdio: 'pipe' }),
    remount: () => {
      execFileSync('umount', [path], { stdio: 'pipe' });
      mount();
    },
    close: async () => {
      if (spawnSync('umount', [path]).status !== 0) spawnSync('umount', ['--lazy', path]);
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** EXT4_IOC_SHUTDOWN without a flush of the journal. */
const shutDown = `
  use Fcntl;
  sysopen(my $disk, $ARGV[0], O_RDONLY) or die $!;
  my $flag = pack('L', 2);
  ioctl($disk, 0x8004587d, $flag) or die $!;`;
