import { unavailable } from '@stowage/common/errors';
import { Readable } from 'node:stream';
import type pg from 'pg';

const pieceBytes = 1024 * 1024;

/** Puts a stream into the database, piece by piece. Gives its size in bytes. */
export async function writePieces(db: pg.Pool, exportId: string, body: Readable): Promise<number> {
  let [position, size] = [0, 0];
  for await (const content of piecesOf(body)) {
    await db.query(`insert into export.export_pieces (export_id, position, content) values ($1, $2, $3)`, [
      exportId,
      position,
      content,
    ]);
    position += 1;
    size += content.length;
  }
  return size;
}

/** The stream again, of `size` bytes. Breaks with `unavailable` where a piece is gone: it was forgotten meanwhile. */
export function readPieces(db: pg.Pool, exportId: string, size: number): Readable {
  return Readable.from(contents(db, exportId, size), { objectMode: false });
}

async function* contents(db: pg.Pool, exportId: string, size: number): AsyncGenerator<Buffer> {
  for (let [position, read] = [0, 0]; read < size; position += 1) {
    const { rows } = await db.query<{ content: Buffer }>(
      `select content from export.export_pieces where export_id = $1 and position = $2`,
      [exportId, position],
    );
    const [piece] = rows;
    if (!piece) throw unavailable('This export is not kept any more.');
    read += piece.content.length;
    yield piece.content;
  }
}

async function* piecesOf(body: Readable): AsyncGenerator<Buffer> {
  let gathered: Buffer[] = [];
  let bytes = 0;
  for await (const some of body) {
    gathered.push(some);
    bytes += some.length;
    if (bytes < pieceBytes) continue;
    yield Buffer.concat(gathered);
    [gathered, bytes] = [[], 0];
  }
  if (bytes > 0) yield Buffer.concat(gathered);
}
