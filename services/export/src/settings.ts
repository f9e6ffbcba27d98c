import { byteSize, duration, integer, setting, text, waitingTime } from '@stowage/common/runtime/settings';
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
  exportBackend: setting(
    'STOWAGE_EXPORT_BACKEND',
    'The id or name of the backend that exports are kept on; unless set, the default one.',
    text,
    { absent: '' },
  ),
  exportIntervalMs: setting(
    'STOWAGE_EXPORT_INTERVAL',
    'How often the metadata are exported to that backend; `off` for never.',
    (given) => (given === 'off' ? 0 : waitingTime(given)),
    { fallback: '1d' },
  ),
  exportKeep: setting('STOWAGE_EXPORT_KEEP', 'How many of these exports are kept.', integer(1, 1000), {
    fallback: '7',
  }),
};

export type ExportSettings = Values<typeof exportSettings>;
