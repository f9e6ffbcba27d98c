import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { crc32c } from '@node-rs/crc32';

/** What a bare server does with a body besides writing it. All but `batch` flush it before they answer. */
export type Receiving = 'batch' | 'fsync' | 'crc' | 'sha' | 'shas';

const batchBytes = 1 << 20;

/** Gathers a body to 1 MiB, and writes one batch while the next one is gathered. */
export async function receive(request: IncomingMessage, file: FileHandle, mode: Receiving): Promise<void> {
  const hash = mode === 'sha' ? createHash('sha256') : null;
  let checksum = 0;
  let position = 0;
  let writing: Promise<unknown> = Promise.resolve();
  for await (const pieces of batchesOf(request)) {
    for (const piece of pieces) {
      hash?.update(piece);
      if (mode === 'crc') checksum = crc32c(piece, checksum);
    }
    await writing;
    writing = file.writev(pieces, position);
    // Its failure is met by the await of the next round.
    writing.catch(() => undefined);
    position += pieces.reduce((sum, piece) => sum + piece.length, 0);
  }
  await writing;
  hash?.digest();
  if (mode !== 'batch') await file.datasync();
}

/** The pieces of a body, some 1 MiB at a time, with back-pressure. */
async function* batchesOf(request: IncomingMessage): AsyncGenerator<Buffer[]> {
  let pieces: Buffer[] = [];
  let gathered = 0;
  let ended = false;
  let wake = (): void => undefined;
  request.on('data', (piece: Buffer) => {
    pieces.push(piece);
    gathered += piece.length;
    if (gathered < batchBytes) return;
    request.pause();
    wake();
  });
  request.on('end', () => {
    ended = true;
    wake();
  });
  for (;;) {
    if (!ended && gathered < batchBytes) await new Promise<void>((resolve) => (wake = resolve));
    if (pieces.length > 0) {
      const batch = pieces;
      pieces = [];
      gathered = 0;
      request.resume();
      yield batch;
    } else if (ended) return;
  }
}
