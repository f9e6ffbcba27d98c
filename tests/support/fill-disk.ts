import { mkdir, open, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

const kibibyte = 1024;

/** Takes all bytes that are left; gives how to give them back. */
export async function fillBytes(disk: string): Promise<() => Promise<void>> {
  const path = join(disk, 'filler');
  const handle = await open(path, 'w');
  try {
    for (const size of [1024 * kibibyte, 4 * kibibyte]) {
      const piece = Buffer.alloc(size, 1);
      while (await handle.write(piece).then(({ bytesWritten }) => bytesWritten === size, isFull));
    }
  } finally {
    await handle.close();
  }
  return () => rm(path);
}

/** Takes all files that there may still be; gives how to give them back. */
export async function fillInodes(disk: string): Promise<() => Promise<void>> {
  const path = join(disk, 'fillers');
  await mkdir(path);
  for (let made = 0; await writeFile(join(path, String(made)), '').then(() => true, isFull); made += 1);
  return () => rm(path, { recursive: true });
}

/** False for the error that was waited for; told by its shape, as errors of the file system are of another realm. */
function isFull(error: unknown): false {
  if (typeof error === 'object' && error !== null && 'code' in error && error.code === 'ENOSPC') return false;
  throw error;
}
