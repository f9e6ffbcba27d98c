import { gatewaySettings } from '@stowage/gateway/settings';
import { setting, text, timeout } from '@stowage/common/runtime/settings';

/** The settings of the command that applies what a file declares. */
export const applySettings = {
  declaredFile: setting(
    'STOWAGE_DECLARED_FILE',
    'YAML or JSON that declares backends and policies, for the command `apply`.',
    text,
  ),
  apiUrl: setting('STOWAGE_API_URL', 'Where the commands `apply` and `smoke` reach the API.', apiAddress, {
    fallback: 'http://127.0.0.1:8080',
  }),
  limitMs: setting('STOWAGE_APPLY_LIMIT', 'How long the command `apply` may take, waiting included.', timeout, {
    fallback: '5m',
  }),
  adminUsername: gatewaySettings.adminUsername,
  adminPassword: setting('STOWAGE_ADMIN_PASSWORD', gatewaySettings.adminPassword.about, text, { secret: true }),
};

function apiAddress(address: string): string {
  const url = URL.parse(address);
  if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password || url.search || url.hash) {
    throw new Error('must be an http or https address without user, password and query');
  }
  return url.href.replace(/\/$/, '');
}
