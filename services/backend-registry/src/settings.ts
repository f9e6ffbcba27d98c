import path from 'node:path';
import { bandwidthSetting } from '@stowage/common/runtime/bandwidth-setting';
import { byteSize, list, oneOf, setting } from '@stowage/common/runtime/settings';
import type { Values } from '@stowage/common/runtime/settings';
import { parseNetwork } from './network/endpoint-guard.ts';
import { parseSecretKeys } from './secrets/key-ring.ts';
import type { SecretKey } from './secrets/key-ring.ts';

/** Link-local addresses, those that clouds answer metadata at, and what is no host's: reserved, or for examples and tests only. */
export const deniedByDefault = [
  '169.254.0.0/16',
  'fe80::/10',
  'fd00:ec2::254',
  '100.100.100.200',
  '168.63.129.16',
  '0.0.0.0/8',
  '::/128',
  '224.0.0.0/4',
  '255.255.255.255',
  'ff00::/8',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '240.0.0.0/4',
  '100::/64',
  '2001:db8::/32',
];

/** The settings of backend-registry. */
export const registrySettings = {
  dataDir: setting('STOWAGE_DATA_DIR', 'The folder of all that is kept locally.', (text) => path.resolve(text), {
    fallback: './data',
  }),
  defaultBackend: setting(
    'STOWAGE_DEFAULT_BACKEND',
    'What the first start makes: `local`, a folder in the data folder, or `none`: one is made through the API.',
    oneOf('local', 'none'),
    { fallback: 'local' },
  ),
  localReserveBytes: setting('STOWAGE_LOCAL_RESERVE', 'Bytes kept free on a local backend.', byteSize, {
    fallback: '64MiB',
  }),
  localRoots: setting<string[]>(
    'STOWAGE_LOCAL_ROOTS',
    'Folders, colon-separated, that local backends may lie in beside the data folder’s `backends`.',
    folders,
    { absent: [] },
  ),
  endpointDeny: setting(
    'STOWAGE_ENDPOINT_DENY',
    'Networks that no endpoint may lie in, comma-separated; unless set, link-local and metadata ones.',
    list(network),
    { absent: deniedByDefault },
  ),
  reconcileBandwidth: bandwidthSetting,
  secretKeys: setting<SecretKey[]>(
    'STOWAGE_SECRET_KEYS',
    'id:base64 of 32 bytes, comma-separated: the first seals, all open; unless set, one is made.',
    parseSecretKeys,
    { absent: [], secret: true },
  ),
};

export type RegistrySettings = Values<typeof registrySettings>;

function folders(text: string): string[] {
  const found = text.split(':').filter((folder) => folder !== '');
  const relative = found.find((folder) => !path.isAbsolute(folder));
  if (relative !== undefined) throw new Error(`must hold absolute paths, not "${relative}"`);
  return found.map((folder) => path.resolve(folder));
}

function network(text: string): string {
  parseNetwork(text);
  return text;
}
