/** Blobs numbered 1 to `count`, whose ids end with their number in hexadecimal. */
export interface SeededBlobs {
  count: number;
  idOf(n: number): string;
}

const folders = 256;

/** At most `most` keys of seeded blobs after a key of them (null: from the first), in the order in which S3 lists keys. */
export function keysAfter(after: string | null, most: number, { count, idOf }: SeededBlobs): string[] {
  const keys: string[] = [];
  // A folder has the numbers that end with its two digits, and the order within is that of the numbers.
  let folder = after === null ? 0 : Number.parseInt(after.slice(-2), 16);
  let n = after === null ? firstOf(0) : Number.parseInt(after.slice(-12), 16) + folders;
  while (keys.length < most && folder < folders) {
    if (n <= count) {
      const id = idOf(n);
      keys.push(`blobs/${id.slice(-2)}/${id}`);
      n += folders;
    } else {
      folder += 1;
      n = firstOf(folder);
    }
  }
  return keys;
}

function firstOf(folder: number): number {
  return folder === 0 ? folders : folder;
}
