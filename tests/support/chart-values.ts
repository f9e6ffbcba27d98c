import type { Json } from './client.ts';
import type { RenderOptions } from './chart.ts';

/** Values, and the file that they are on top of. */
export interface ValuesCase {
  values: Json;
  options: RenderOptions;
}

/** The least that can be installed. */
export const minimal: Json = { database: { existingSecret: { name: 'stowage-database' } } };

/** For trying out: nothing from outside. */
export const bundled: Json = { bundled: { postgresql: { enabled: true }, nats: { enabled: true } } };

const s3Config = {
  endpoint: 'https://s3.example.com:9443',
  region: 'eu-central-1',
  bucket: 'archive',
  access_key_id: { secret_ref: { name: 'archive-s3', key: 'id' } },
  secret_access_key: { secret_ref: { name: 'archive-s3', key: 'secret' } },
};

/** All that can be switched on beside an external database, switched on. */
export const everything: Json = {
  ...minimal,
  nats: {
    existingSecret: { name: 'stowage-nats' },
    credentials: { secretName: 'creds' },
    ca: { secretName: 'nats-ca' },
  },
  image: { digest: `sha256:${'0'.repeat(64)}` },
  imagePullSecrets: [{ name: 'registry' }],
  commonLabels: { team: 'storage' },
  commonAnnotations: { 'example.com/owner': 'storage' },
  trustedProxies: ['10.0.0.0/8'],
  ingress: { enabled: true, className: 'nginx', host: 'files.example.com', tls: { secretName: 'files-tls' } },
  admin: { existingSecret: { name: 'admin' } },
  sealKeys: { existingSecret: { name: 'keys' } },
  secretRefs: ['dav'],
  backends: [{ name: 'archive', type: 's3', default: true, config: s3Config }],
  policies: [{ file_class: 'default', backends: ['archive'], replicas: 1 }],
  defaultBackend: 'none',
  persistence: { enabled: false },
  settings: { STOWAGE_RECYCLE_RETENTION: '60d' },
  tls: { mode: 'cert-manager', certManager: { issuerRef: { name: 'stowage-ca' } } },
  extraCA: { configMap: 'private-ca' },
  telemetry: { otlpEndpoint: 'http://collector.observability:4318', otel: { OTEL_TRACES_SAMPLER: 'always_on' } },
  serviceMonitor: { enabled: true, labels: { release: 'prometheus' } },
  prometheusRule: { enabled: true },
  dashboard: { enabled: true },
  pods: {
    priorityClassName: 'important',
    autoscaling: { enabled: true },
    extraEnv: [{ name: 'TZ', value: 'UTC' }],
    extraVolumes: [{ name: 'more', emptyDir: {} }],
    extraVolumeMounts: [{ name: 'more', mountPath: '/more' }],
  },
  services: { 'backend-registry': { replicas: 2 } },
};

/** The ways in which the chart is used, each rendered by the tests that hold for all of them. */
export const valuesCases: Record<string, ValuesCase> = {
  minimal: { values: minimal, options: {} },
  bundled: { values: bundled, options: {} },
  everything: { values: everything, options: {} },
  route: {
    values: {
      ...minimal,
      httpRoute: { enabled: true, host: 'files.example.com', parentRefs: [{ name: 'public', namespace: 'gateways' }] },
      tls: { mode: 'off' },
      networkPolicy: { enabled: true, gatewayFrom: [{ namespaceSelector: { matchLabels: { name: 'gateways' } } }] },
    },
    options: {},
  },
  production: { values: {}, options: { file: 'deploy/values/production.yaml' } },
  development: { values: {}, options: { file: 'deploy/values/development.yaml' } },
};
