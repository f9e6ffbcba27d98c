import { begun } from '@stowage/common/bytes/begun';
import type { Database } from '@stowage/common/database/database';
import { AppError } from '@stowage/common/errors';
import type { ReadExportRequest } from '@stowage/proto/stowage/export/v1/export';
import { pipeline } from 'node:stream';
import type { Readable } from 'node:stream';
import { createGzip } from 'node:zlib';
import { exportDocument } from '../snapshot/export-document.ts';

/** The document that is asked for, plain or compressed. Throws `not_found`, and what keeps it from its first byte. */
export async function readExport(
  { bulk }: Pick<Database, 'bulk'>,
  { exportId, gzip }: Pick<ReadExportRequest, 'exportId' | 'gzip'>,
  signal: AbortSignal,
): Promise<Readable> {
  if (exportId !== '') throw new AppError('not_found', 'No export with this id was kept.');
  const document = await begun(exportDocument(bulk), signal);
  return gzip ? compressed(document) : document;
}

/** The end of one is the end of both. */
function compressed(document: Readable): Readable {
  return pipeline(document, createGzip({ level: 6 }), () => undefined);
}
