import { AppError } from '@stowage/common/errors';
import type { CallContext } from '@stowage/common/rpc/context';
import type { LRUCache } from 'lru-cache';
import type { AppDependencies } from '../app-types.ts';
import { present } from '../routes/nodes.ts';
import { previewKind, textPreview } from './preview-kind.ts';
import { sourceOf } from './send-content.ts';
import { readWhole } from './verified-reader.ts';
import type { BlobSource } from './verified-reader.ts';

/** A small picture or text made from a file, never the file itself. */
export interface Preview {
  mediaType: string;
  etag: string;
  bytes: Buffer;
}

const textBytes = 64 * 1024;
/** A picture over this is not decoded at all; the previewer has limits on pixels, time and memory besides. */
const imageBytes = 64 * 1024 * 1024;

/** Makes a preview, or takes it from the cache. Throws `unsupported_media_type` and `unprocessable`. */
export async function makePreview(
  dependencies: AppDependencies,
  cache: LRUCache<string, Preview>,
  wanted: { fileId: string; size: number },
  context: CallContext,
): Promise<Preview> {
  const found = await dependencies.content.getContent({ fileId: wanted.fileId }, context);
  const file = present(found.file);
  const kind = previewKind(present(file.file).mediaType, file.name);
  if (kind === null) throw new AppError('unsupported_media_type', 'There are previews of pictures and of text only.');
  const source = sourceOf(found);
  const key = kind === 'text' ? `${source.blobId}-text` : `${source.blobId}-${wanted.size}`;
  const kept = cache.get(key);
  if (kept) return kept;
  const bytes =
    kind === 'text'
      ? await textOf(dependencies, source, context)
      : await imageOf(dependencies, source, wanted.size, context);
  const mediaType = kind === 'text' ? 'text/plain; charset=utf-8' : 'image/webp';
  const preview = { mediaType, etag: `"${key}"`, bytes };
  cache.set(key, preview);
  return preview;
}

async function textOf(dependencies: AppDependencies, source: BlobSource, context: CallContext): Promise<Buffer> {
  return textPreview(await readWhole(dependencies, source, Math.min(source.size, textBytes), context));
}

async function imageOf(
  dependencies: AppDependencies,
  source: BlobSource,
  size: number,
  context: CallContext,
): Promise<Buffer> {
  if (source.size > imageBytes) throw new AppError('unprocessable', 'The picture is too large for a preview.');
  // Read when its turn has come: those that wait are not in memory.
  const load = (): Promise<Buffer> => readWhole(dependencies, source, source.size, context);
  return dependencies.previewer.makeWebp(load, size, context.signal);
}
