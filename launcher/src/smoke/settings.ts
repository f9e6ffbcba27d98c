import { duration, origin, setting, text } from '@stowage/common/runtime/settings';

/** Where the smoke test finds Stowage, and whom it logs in as. */
export const smokeSettings = {
  url: setting('STOWAGE_API_URL', 'Where `apply` and `smoke` reach the API, as http://stowage-gateway.', origin),
  username: setting('STOWAGE_ADMIN_USERNAME', 'The first admin’s user name.', text, { fallback: 'admin' }),
  password: setting('STOWAGE_ADMIN_PASSWORD', 'The first admin’s password.', text, { secret: true }),
  patienceMs: setting('STOWAGE_API_WAIT', 'How long they wait for it to take connections.', duration, {
    fallback: '60s',
  }),
};
