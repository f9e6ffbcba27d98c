import { byteSize, setting } from '@stowage/common/runtime/settings';

/** What export alone has to be told. */
export const exportSettings = {
  documentLimit: setting(
    'STOWAGE_DOCUMENT_LIMIT',
    'The largest metadata document that is read, expanded where it is compressed.',
    byteSize,
    { fallback: '8GiB' },
  ),
};
