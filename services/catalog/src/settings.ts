import { duration, setting } from '@stowage/common/runtime/settings';

/** What the catalog alone has to be told. */
export const catalogSettings = {
  retentionMs: setting(
    'STOWAGE_RECYCLE_RETENTION',
    'How long an entry stays in the recycle bin before it is removed for good.',
    duration,
    { fallback: '30d' },
  ),
  graceMs: setting('STOWAGE_GC_GRACE', 'How long content that no file refers to is kept on the backends.', duration, {
    fallback: '7d',
  }),
};

/** How long the recycle bin keeps an entry, and the backends what was purged. */
export interface Keeping {
  retentionMs: number;
  graceMs: number;
}
