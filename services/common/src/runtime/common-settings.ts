import { logLevels } from './logger.ts';
import { integer, oneOf, setting, text, timeout, waitingTime } from './settings.ts';

/** Settings that every service has. */
export const commonSettings = {
  logLevel: setting(
    'STOWAGE_LOG_LEVEL',
    'What is logged: fatal, error, warn, info, debug, trace or silent.',
    oneOf(...logLevels),
    {
      fallback: 'info',
    },
  ),
  metrics: setting(
    'STOWAGE_METRICS',
    'Whether the management port serves metrics without a collector of traces too: true or false.',
    oneOf('true', 'false'),
    { fallback: 'false' },
  ),
  drainMs: setting('STOWAGE_DRAIN_TIMEOUT', 'How long a stopping process finishes what is under way.', waitingTime, {
    fallback: '8s',
  }),
  drainDelayMs: setting(
    'STOWAGE_DRAIN_DELAY',
    'How long a stopping process still takes requests after it turned unready.',
    waitingTime,
    { fallback: '0ms' },
  ),
  databaseConnections: setting(
    'STOWAGE_DATABASE_CONNECTIONS',
    'Database connections of each service.',
    integer(2, 200),
    {
      fallback: '10',
    },
  ),
  jobConcurrency: setting('STOWAGE_JOB_CONCURRENCY', 'Jobs that each service runs at a time.', integer(1, 64), {
    fallback: '4',
  }),
  jobIntervalMs: setting('STOWAGE_JOB_INTERVAL', 'How often the housekeeping jobs run.', timeout, { fallback: '10m' }),
  jobLeaseMs: setting('STOWAGE_JOB_LEASE', 'After how long a dead worker’s job is taken over.', timeout, {
    fallback: '30s',
  }),
};

/** The database of a process that does not bring its own. */
export const databaseSettings = {
  databaseUrl: setting('STOWAGE_DATABASE_URL', 'PostgreSQL 15 or later, as postgres://…', postgresUrl, {
    secret: true,
  }),
};

export function postgresUrl(text: string): string {
  if (!/^postgres(ql)?:\/\//.test(text) || !URL.canParse(text))
    throw new Error('must be like postgres://user:password@host/db');
  return text;
}

/** Addresses of the other services, for a service in a process of its own. */
export const addressSettings = {
  catalogRpc: setting('STOWAGE_CATALOG_RPC', 'Where catalog answers gRPC.', text, { fallback: 'catalog:9000' }),
  uploadRpc: setting('STOWAGE_UPLOAD_RPC', 'Where upload answers gRPC.', text, { fallback: 'upload:9000' }),
  uploadBytes: setting('STOWAGE_UPLOAD_BYTES', 'The byte port of upload.', text, { fallback: 'http://upload:9001' }),
  registryRpc: setting('STOWAGE_BACKEND_REGISTRY_RPC', 'Where backend-registry answers gRPC.', text, {
    fallback: 'backend-registry:9000',
  }),
  registryBytes: setting('STOWAGE_BACKEND_REGISTRY_BYTES', 'The byte port of backend-registry.', text, {
    fallback: 'http://backend-registry:9001',
  }),
  placementRpc: setting('STOWAGE_PLACEMENT_RPC', 'Where placement answers gRPC.', text, { fallback: 'placement:9000' }),
  exportRpc: setting('STOWAGE_EXPORT_RPC', 'Where export answers gRPC.', text, { fallback: 'export:9000' }),
  exportBytes: setting('STOWAGE_EXPORT_BYTES', 'The byte port of export.', text, { fallback: 'http://export:9001' }),
};

/** The ports of a service in a process of its own. */
export const portSettings = {
  listenHost: setting('STOWAGE_LISTEN_HOST', 'The address that the inner ports are bound to.', text, {
    fallback: '0.0.0.0',
  }),
  rpcPort: setting('STOWAGE_RPC_PORT', 'The gRPC port.', integer(0, 65_535), { fallback: '9000' }),
  bytesPort: setting('STOWAGE_BYTES_PORT', 'The byte port.', integer(0, 65_535), { fallback: '9001' }),
  managementPort: setting('STOWAGE_MANAGEMENT_PORT', 'The port of probes and metrics.', integer(0, 65_535), {
    fallback: '9090',
  }),
};
