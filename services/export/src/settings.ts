import { byteSize, duration, setting } from '@stowage/common/runtime/settings';
import type { Values } from '@stowage/common/runtime/settings';

/** What export alone has to be told. */
export const exportSettings = {
  documentLimit: setting(
    'STOWAGE_DOCUMENT_LIMIT',
    'The largest metadata document that is read, expanded where it is compressed.',
    byteSize,
    { fallback: '8GiB' },
  ),
  graceMs: setting('STOWAGE_GC_GRACE', 'How long content that no file refers to is kept on the backends.', duration, {
    fallback: '7d',
  }),
};

export type ExportSettings = Values<typeof exportSettings>;
