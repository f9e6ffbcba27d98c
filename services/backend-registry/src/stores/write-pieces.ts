import type { FileHandle } from 'node:fs/promises';
import { unavailable } from '@stowage/common/errors';

/** Writes all pieces at `position` of a file; `onWritten` hears of every part that the system took. */
export async function writePieces(
  handle: FileHandle,
  pieces: readonly Buffer[],
  position: number,
  onWritten: (bytes: number) => void,
): Promise<void> {
  let rest = pieces.filter((piece) => piece.length > 0);
  let at = position;
  while (rest.length > 0) {
    const { bytesWritten } = await handle.writev(rest, at);
    if (bytesWritten === 0) throw unavailable('The backend takes no bytes just now.');
    onWritten(bytesWritten);
    at += bytesWritten;
    rest = after(rest, bytesWritten);
  }
}

function after(pieces: readonly Buffer[], written: number): Buffer[] {
  let skipped = 0;
  let index = 0;
  for (const piece of pieces) {
    if (skipped + piece.length > written) break;
    skipped += piece.length;
    index += 1;
  }
  const [partial, ...rest] = pieces.slice(index);
  return partial ? [partial.subarray(written - skipped), ...rest] : [];
}
