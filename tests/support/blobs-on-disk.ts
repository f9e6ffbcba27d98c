import { open, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sha256 } from './client.ts';

/** The default backend's blobs, as paths. */
export async function blobFiles(dataDir: string): Promise<string[]> {
  const root = join(dataDir, 'backends/local/blobs');
  const entries = await readdir(root, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
}

/** The blob whose content has that hash, or null. */
export async function findBlobFile(dataDir: string, hash: string): Promise<string | null> {
  for (const file of await blobFiles(dataDir)) {
    // It may be removed while we look.
    const content = await readFile(file).catch(() => null);
    if (content && sha256(content) === hash) return file;
  }
  return null;
}

/** As findBlobFile, for a blob that must be there. */
export async function blobFileOf(dataDir: string, hash: string): Promise<string> {
  const file = await findBlobFile(dataDir, hash);
  if (file === null) throw new Error(`no blob in ${dataDir} has the hash ${hash}`);
  return file;
}

/** Turns one bit of the byte at `position`. */
export async function flipBit(file: string, position: number): Promise<void> {
  const handle = await open(file, 'r+');
  try {
    const byte = Buffer.alloc(1);
    await handle.read(byte, 0, 1, position);
    byte.writeUInt8(byte.readUInt8(0) ^ 0x10, 0);
    await handle.write(byte, 0, 1, position);
  } finally {
    await handle.close();
  }
}
