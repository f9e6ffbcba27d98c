import { describe, expect, test } from '@jest/globals';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse } from 'yaml';
import { Config } from '../../services/gateway/src/routes/backends-shapes.ts';
import { chartFolder, describeChart, find, ofKind, podsOf, renderChart } from '../support/chart.ts';
import { everything, minimal } from '../support/chart-values.ts';
import type { Json } from '../support/client.ts';

const root = join(chartFolder, '../..');

async function defaults(): Promise<Json> {
  return parse(await readFile(join(chartFolder, 'values.yaml'), 'utf8'));
}

async function schema(): Promise<Json> {
  return JSON.parse(await readFile(join(chartFolder, 'values.schema.json'), 'utf8'));
}

/** The schema of a part, with what it refers to put in. */
function resolve(whole: Json, part: Json): Json {
  const reference: unknown = part['$ref'];
  if (typeof reference !== 'string') return part;
  return reference
    .split('/')
    .slice(1)
    .reduce((at, key): Json => at[key], whole);
}

/** The path of every map that the schema closes, in values as one would write them. */
function closedMaps(whole: Json, part: Json = whole, path: string[] = []): string[][] {
  const { type, properties = {}, items, additionalProperties } = resolve(whole, part);
  if (type === 'array') return items ? closedMaps(whole, items, [...path, '[]']) : [];
  const inner = Object.entries<Json>(properties).flatMap(([key, value]) => closedMaps(whole, value, [...path, key]));
  return additionalProperties === false ? [path, ...inner] : inner;
}

/** A value at the end of a path, in what leads there. */
function wrap(path: readonly string[], value: unknown): unknown {
  const [first, ...rest] = path;
  if (first === undefined) return value;
  return first === '[]' ? [wrap(rest, value)] : { [first]: wrap(rest, value) };
}

/** Both in one, as deep as they have the same keys. */
function merge(one: unknown, two: unknown): unknown {
  if (Array.isArray(one) && Array.isArray(two)) return [merge(one[0], two[0])];
  if (!isMap(one) || !isMap(two)) return two;
  return { ...one, ...Object.fromEntries(Object.entries(two).map(([key, value]) => [key, merge(one[key], value)])) };
}

function isMap(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

describeChart('values of the chart', () => {
  test('have the same keys as their schema: none that it does not know, none that is not there to be read about', async () => {
    const whole = await schema();
    const compare = (values: Json, part: Json, path: string): string[] => {
      const { properties, additionalProperties } = resolve(whole, part);
      if (!properties || additionalProperties !== false) return [];
      const names = [...new Set([...Object.keys(values), ...Object.keys(properties)])].filter(
        (name) => name !== 'global',
      );
      return names.flatMap((name) => {
        const value: unknown = values[name];
        if (!(name in values) || !(name in properties)) return [`${path}${name}`];
        return isMap(value) ? compare(value, properties[name], `${path}${name}.`) : [];
      });
    };
    const odd = compare(await defaults(), whole, '');
    // Told of by comments and by Kubernetes: few installations have any of them.
    expect(odd.filter((path) => !/^(settings|services\.[a-z-]+|pods\.\w+Probe)\./.test(path))).toEqual([]);
  });

  test('are refused where a key is unknown, at every level', async () => {
    const paths = closedMaps(await schema());
    expect(paths.length).toBeGreaterThan(40);
    const values = paths.map((path) => wrap(path, { tpyo: 1 })).reduce(merge, minimal);
    const message = await renderChart(Object(values)).then(String, String);
    const places = paths.map((path) => `'${path.map((name) => `/${name.replace('[]', '0')}`).join('')}'`);
    expect(
      places.filter((place) => !message.includes(`at ${place}: additional properties 'tpyo' not allowed`)),
    ).toEqual([]);
  });

  test('take all settings that are no secrets and that the chart does not make itself', async () => {
    const readme = await readFile(join(root, 'README.md'), 'utf8');
    const settings = [...readme.matchAll(/^\| `(STOWAGE_\w+)` +\|/gm)].map((match) => match[1] ?? '');
    const taken = Object.keys(resolve(await schema(), (await schema())['properties'].settings)['properties']);
    const rendered = await Promise.all([renderChart(minimal), renderChart(everything)]);
    const variables = rendered.flatMap(podsOf).flatMap(({ containers }) => containers.flatMap(({ env }) => env ?? []));
    const made = new Set(variables.flatMap(({ name }: Json) => [name, name.replace(/_FILE$/, '')]));
    expect(settings.filter((name) => !taken.includes(name) && !made.has(name))).toEqual([]);
    expect(taken.filter((name) => !settings.includes(name))).toEqual([]);
    const secrets = [
      'STOWAGE_DATABASE_URL',
      'STOWAGE_SECRET_KEYS',
      'STOWAGE_ADMIN_PASSWORD',
      'STOWAGE_NATS_URL',
      'STOWAGE_NATS_CREDS',
    ];
    expect(taken.filter((name) => secrets.includes(name))).toEqual([]);
  });

  test('hand settings on as they were written', async () => {
    const settings = {
      STOWAGE_RECYCLE_RETENTION: '60d',
      STOWAGE_LOGIN_FAILURES_PER_USER: 5,
      STOWAGE_UPLOADS_PER_USER: 1000000,
    };
    for (const { containers, owner } of podsOf(await renderChart({ ...minimal, settings }))) {
      if (!owner.startsWith('Deployment/')) continue;
      const env = Object.fromEntries((containers[0]?.['env'] ?? []).map(({ name, value }: Json) => [name, value]));
      expect(env).toMatchObject({
        STOWAGE_RECYCLE_RETENTION: '60d',
        STOWAGE_LOGIN_FAILURES_PER_USER: '5',
        STOWAGE_UPLOADS_PER_USER: '1000000',
      });
    }
  });
});

const s3 = { name: 'archive', type: 's3', default: true, config: { region: 'x', bucket: 'b' } };
const none = { defaultBackend: 'none', persistence: { enabled: false } };

/** What can't work, and what the refusal has to say. */
const refusals: [string, Json, RegExp][] = [
  ['no database', {}, /No database is given/],
  ['two databases', { ...minimal, bundled: { postgresql: { enabled: true } } }, /More than one database/],
  ['two buses', { ...minimal, nats: { url: 'nats://x', existingSecret: { name: 'y' } } }, /More than one NATS/],
  ['credentials without a bus', { ...minimal, nats: { credentials: { secretName: 'x' } } }, /need a NATS/],
  ['an ingress without a host', { ...minimal, ingress: { enabled: true } }, /ingress has no host/],
  [
    'a route without a host',
    { ...minimal, httpRoute: { enabled: true, parentRefs: [{ name: 'x' }] } },
    /route has no host/,
  ],
  ['a route to no Gateway', { ...minimal, httpRoute: { enabled: true, host: 'x.example' } }, /attached to no Gateway/],
  ['cert-manager without an issuer', { ...minimal, tls: { mode: 'cert-manager' } }, /needs an issuer/],
  ['two authorities', { ...minimal, extraCA: { configMap: 'x', secret: 'y' } }, /not both/],
  [
    'least above most',
    { ...minimal, pods: { autoscaling: { enabled: true, minReplicas: 7 } }, ...none, backends: [s3] },
    /minReplicas 7 above maxReplicas 6/,
  ],
  [
    'autoscaling by nothing',
    { ...minimal, services: { gateway: { autoscaling: { enabled: true, targetCPUUtilization: null } } } },
    /autoscaling of gateway has no target/,
  ],
  [
    'a secret in the environment',
    { ...minimal, pods: { extraEnv: [{ name: 'STOWAGE_ADMIN_PASSWORD', value: 'x' }] } },
    /STOWAGE_ADMIN_PASSWORD is a secret/,
  ],
  [
    'a grace period shorter than the drain',
    { ...minimal, pods: { terminationGracePeriodSeconds: 10 } },
    /ends before drain/,
  ],
  [
    'two replicas on one ReadWriteOnce volume',
    { ...minimal, services: { 'backend-registry': { replicas: 2 } } },
    /2 replicas of backend-registry can't share a ReadWriteOnce volume/,
  ],
  [
    'autoscaling on one ReadWriteOnce volume',
    { ...minimal, pods: { autoscaling: { enabled: true } } },
    /6 replicas of backend-registry can't share/,
  ],
  [
    'a local backend without a volume',
    { ...minimal, persistence: { enabled: false } },
    /needs a volume, or content would be gone/,
  ],
  [
    'a claim that is not used',
    { ...minimal, ...none, persistence: { enabled: false, existingClaim: 'x' }, backends: [s3] },
    /existingClaim is set, but/,
  ],
  [
    'a folder without a volume',
    { ...minimal, ...none, backends: [s3, { name: 'f', type: 'local_directory', config: { root_path: '/x' } }] },
    /type local_directory needs a volume/,
  ],
  [
    'backends declared twice',
    { ...minimal, backends: [{ ...s3, default: false }], declaredConfigMap: { name: 'x' } },
    /declared twice: by/,
  ],
  ['one backend twice', { ...minimal, ...none, backends: [s3, s3] }, /"archive" is declared twice/],
  [
    'a secret in values',
    { ...minimal, ...none, backends: [{ ...s3, config: { ...s3.config, secret_access_key: 'plain' } }] },
    /must not stand in values/,
  ],
  ['two defaults', { ...minimal, ...none, backends: [s3, { ...s3, name: 'b' }] }, /Only one backend can have default/],
  ['two landing places', { ...minimal, backends: [s3] }, /but defaultBackend is local/],
  [
    'a WebDAV server to land on',
    { ...minimal, ...none, backends: [{ ...s3, type: 'webdav', config: { url: 'https://x/' } }] },
    /uploads can't grow/,
  ],
  [
    'alerts on nothing',
    { ...minimal, prometheusRule: { enabled: true }, telemetry: { metrics: false } },
    /need metrics/,
  ],
  ['no landing place', { ...minimal, ...none }, /nowhere to land/],
  [
    'a policy twice',
    {
      ...minimal,
      policies: ['a', 'b'].map((backend) => ({ file_class: 'default', backends: [backend], replicas: 1 })),
    },
    /"default" is declared twice/,
  ],
];

describeChart('values that can not work', () => {
  test.each(refusals)('are refused with a sentence: %s', async (_what, values, sentence) => {
    await expect(renderChart(values)).rejects.toThrow(sentence);
  });

  test('are a name that Services can not have, unless there is another', async () => {
    await expect(renderChart(minimal, { release: 'my.rel' })).rejects.toThrow(/as "my\.rel-stowage" has one/);
    await renderChart({ ...minimal, fullnameOverride: 'files' }, { release: 'my.rel' });
  });

  test('are told of all at once', async () => {
    const refused = renderChart({ ingress: { enabled: true }, persistence: { enabled: false } });
    await expect(refused).rejects.toThrow(/No database[^]*ingress has no host[^]*needs a volume/);
  });

  test('never show a secret in the refusal', async () => {
    const word = 'CanaryOfTheRefusal';
    const given = { database: { url: `postgres://u:${word}@h/d`, existingSecret: { name: 'x' } } };
    const message = await renderChart(given).then(String, String);
    expect(message).toContain('More than one database');
    expect(message).not.toContain(word);
  });
});

describe('the declared backends', () => {
  test('take the same configuration as the API', async () => {
    const whole = await schema();
    const { items } = whole['properties'].backends;
    const config = resolve(whole, resolve(whole, items)['properties'].config);
    expect(Object.keys(config['properties']).sort()).toEqual(Object.keys(Config.properties).sort());
  });
});

describeChart('what is asked for', () => {
  test('becomes the public address: given, of the ingress, of the route, or none', async () => {
    const addressOf = async (values: Json): Promise<unknown> =>
      find(await renderChart({ ...minimal, ...values }), 'Deployment', '-gateway')[
        'spec'
      ].template.spec.containers[0].env.find(({ name }: Json) => name === 'STOWAGE_PUBLIC_URL')?.value;
    const ingress = { enabled: true, host: 'files.example.com' };
    const httpRoute = { enabled: true, host: 'route.example.com', parentRefs: [{ name: 'public' }] };
    expect(await addressOf({})).toBeUndefined();
    expect(await addressOf({ ingress })).toBe('https://files.example.com');
    expect(await addressOf({ ingress: { ...ingress, tls: { enabled: false } } })).toBe('http://files.example.com');
    expect(await addressOf({ httpRoute })).toBe('https://route.example.com');
    expect(await addressOf({ ingress, publicUrl: 'https://other.example.com:8443/' })).toBe(
      'https://other.example.com:8443',
    );
  });

  test('becomes an ingress without limits of size, without buffers, and with long time-outs', async () => {
    const [ingress] = ofKind(await renderChart(everything), 'Ingress');
    expect(ingress?.metadata['annotations']).toMatchObject({
      'nginx.ingress.kubernetes.io/proxy-body-size': '0',
      'nginx.ingress.kubernetes.io/proxy-request-buffering': 'off',
      'nginx.ingress.kubernetes.io/proxy-buffering': 'off',
      'nginx.ingress.kubernetes.io/proxy-read-timeout': '3600',
      'nginx.ingress.kubernetes.io/proxy-send-timeout': '3600',
    });
    expect(ingress?.['spec']).toEqual({
      ingressClassName: 'nginx',
      tls: [{ hosts: ['files.example.com'], secretName: 'files-tls' }],
      rules: [
        {
          host: 'files.example.com',
          http: {
            paths: [
              {
                path: '/',
                pathType: 'Prefix',
                backend: { service: { name: 'rel-stowage-gateway', port: { name: 'http' } } },
              },
            ],
          },
        },
      ],
    });
  });

  test('becomes a route without time-outs', async () => {
    const httpRoute = {
      enabled: true,
      host: 'files.example.com',
      parentRefs: [{ name: 'public', namespace: 'gateways' }],
    };
    const [route] = ofKind(await renderChart({ ...minimal, httpRoute }), 'HTTPRoute');
    expect(route?.['spec']).toEqual({
      parentRefs: [{ name: 'public', namespace: 'gateways' }],
      hostnames: ['files.example.com'],
      rules: [
        {
          matches: [{ path: { type: 'PathPrefix', value: '/' } }],
          timeouts: { request: '0s', backendRequest: '0s' },
          backendRefs: [{ name: 'rel-stowage-gateway', port: 80 }],
        },
      ],
    });
  });
});
