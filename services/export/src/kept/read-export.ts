import { begun } from '@stowage/common/bytes/begun';
import { toDatabaseError } from '@stowage/common/database/database-error';
import { AppError, unavailable } from '@stowage/common/errors';
import { isId } from '@stowage/common/ids';
import type { CallContext } from '@stowage/common/rpc/context';
import type { ReadExportRequest } from '@stowage/proto/stowage/export/v1/export';
import type pg from 'pg';
import type { Readable } from 'node:stream';
import { exportDocument } from '../snapshot/export-document.ts';
import { compressed, expanded } from './compress.ts';
import { findKept } from './kept-rows.ts';
import type { KeptStorage } from './kept-storage.ts';
import { readPieces } from './pieces.ts';

/** Each holds one of the few connections for long work, and keeps PostgreSQL from cleaning up. */
const snapshotsAtOnce = 2;

/** Gives documents out: of the metadata as they are now, and kept ones. */
export class ExportReader {
  readonly #bulk: pg.Pool;
  readonly #storage: KeptStorage;
  #snapshots = 0;

  constructor(bulk: pg.Pool, storage: KeptStorage) {
    this.#bulk = bulk;
    this.#storage = storage;
  }

  /** The document that is asked for, plain or compressed, once its first bytes are there. Errors as ReadExportRequest says. */
  async read(
    { exportId, gzip }: Pick<ReadExportRequest, 'exportId' | 'gzip'>,
    context: CallContext,
  ): Promise<Readable> {
    if (exportId === '') {
      const document = this.#snapshot();
      return begun(gzip ? compressed(document) : document, context.signal);
    }
    const document = await this.#kept(exportId, context);
    return begun(gzip ? document : expanded(document), context.signal);
  }

  #snapshot(): Readable {
    if (this.#snapshots >= snapshotsAtOnce) {
      throw unavailable('Other exports are under way: try again when they are done.', undefined, 30);
    }
    this.#snapshots += 1;
    return exportDocument(this.#bulk).once('close', () => {
      this.#snapshots -= 1;
    });
  }

  async #kept(exportId: string, context: CallContext): Promise<Readable> {
    const found = isId(exportId) ? await findKept(this.#bulk, exportId).catch(rethrow) : null;
    if (!found) throw new AppError('not_found', 'No export with this id is kept.');
    if (found.state === 'writing') throw new AppError('state_conflict', 'This export is still being written.');
    if (!found.place) return readPieces(this.#bulk, exportId, found.bytes);
    return this.#storage.read({ ...found.place, size: BigInt(found.bytes) }, context);
  }
}

function rethrow(error: unknown): never {
  throw toDatabaseError(error);
}
