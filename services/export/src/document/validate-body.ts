import type { MessageInitShape } from '@bufbuild/protobuf';
import type { Readable } from 'node:stream';
import type pg from 'pg';
import type { ValidateDocumentResponseSchema } from '@stowage/proto/stowage/export/v1/export';
import type { Expanding } from './expanded.ts';
import { stageDocument } from './stage-document.ts';

/** Tells what is wrong with a document and leaves nothing behind. Throws as stageDocument. */
export async function validateBody(
  bulk: pg.Pool,
  body: Readable,
  expanding: Expanding,
): Promise<MessageInitShape<typeof ValidateDocumentResponseSchema>> {
  const { valid, errors, warnings, counts, sha256 } = await stageDocument(bulk, body, { ...expanding, keep: false });
  return { valid, errors, warnings, counts, sha256 };
}
