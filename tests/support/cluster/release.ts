import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { logIn, until } from '../client.ts';
import type { Client, Json } from '../client.ts';
import { adminPassword } from '../system.ts';
import { apply, kubectl, runCommand, tryCommand } from './commands.ts';
import { makeDatabase, nameOf, password, user } from './dependencies.ts';
import type { ClusterDatabase } from './dependencies.ts';
import { describePods } from './diagnosis.ts';

const chart = join(import.meta.dirname, '../../../charts/stowage');
const timeLimit = '300s';
const readyLimitMs = 60_000;
const name = 'stowage';

/** The six, as the chart names their pods' component. */
export const serviceNames = ['gateway', 'catalog', 'upload', 'backend-registry', 'placement', 'export'] as const;
export type ServiceName = (typeof serviceNames)[number];

export interface ReleaseWish {
  /** Of its own, and labelled Pod Security `restricted` unless said otherwise; the database has its name too. */
  namespace: string;
  /** Beside what baseValues gives. */
  values?: Json;
  /** Of the image; `test` unless said otherwise. */
  tag?: string;
  podSecurity?: 'restricted' | 'privileged';
}

/** A release of the chart in a namespace of its own, with a database of its own on the PostgreSQL of deps.yaml. */
export class Release {
  readonly namespace: string;
  readonly database: ClusterDatabase;
  #values: Json;
  #tag: string;

  constructor(wish: ReleaseWish, database: ClusterDatabase) {
    this.namespace = wish.namespace;
    this.database = database;
    this.#values = wish.values ?? {};
    this.#tag = wish.tag ?? 'test';
  }

  /** `helm install` into a fresh namespace. */
  static async install(wish: ReleaseWish): Promise<Release> {
    const release = await Release.prepare(wish);
    await release.helm('install');
    await release.untilReady();
    return release;
  }

  /** The namespace with the Secrets that a platform team would put there, and an empty database; nothing of the chart. */
  static async prepare(wish: ReleaseWish): Promise<Release> {
    const { namespace } = wish;
    await kubectl(['delete', 'namespace', namespace, '--ignore-not-found']);
    const database = await makeDatabase(namespace);
    const labels = {
      'stowage.dev/test': 'cluster',
      'pod-security.kubernetes.io/enforce': wish.podSecurity ?? 'restricted',
    };
    await apply({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace, labels } });
    await apply(
      secret(namespace, 'database', { url: database.url }),
      secret(namespace, 'admin', { password: adminPassword }),
      secret(namespace, 'nats', { url: `nats://${user}:${password}@${nameOf('nats')}` }),
    );
    return new Release(wish, database);
  }

  /** `helm install` or `upgrade`; gives how long it took until all was Ready, in seconds. */
  async helm(action: 'install' | 'upgrade'): Promise<number> {
    const began = performance.now();
    const folder = await mkdtemp(join(tmpdir(), 'stowage-values-'));
    try {
      const files = await Promise.all(
        [baseValues(this.#tag), this.#values, valuesOfThisCluster()].map(async (values, index) => {
          const file = join(folder, `${index}.json`);
          await writeFile(file, JSON.stringify(values));
          return ['--values', file];
        }),
      );
      const waiting = ['--wait', '--timeout', timeLimit];
      const all = [action, name, chart, '-n', this.namespace, ...files.flat(), ...waiting];
      const { code, errors, out } = await tryCommand('helm', all);
      if (code !== 0) throw new Error(`helm ${action}: ${errors}${out}\n${await describePods(this.namespace)}`);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
    return (performance.now() - began) / 1000;
  }

  /** `helm upgrade`, to other values or another image where they are given. */
  upgrade(change: { values?: Json; tag?: string } = {}): Promise<number> {
    this.#values = change.values ?? this.#values;
    this.#tag = change.tag ?? this.#tag;
    return this.helm('upgrade');
  }

  async uninstall(): Promise<void> {
    await runCommand('helm', ['uninstall', name, '-n', this.namespace, '--wait', '--timeout', timeLimit]);
  }

  /** `helm test`; throws, with the log of its pod, where it fails. */
  async test(): Promise<string> {
    return runCommand('helm', ['test', name, '-n', this.namespace, '--logs', '--timeout', timeLimit]);
  }

  kubectl(args: readonly string[], input = ''): Promise<string> {
    return kubectl(['-n', this.namespace, ...args], input);
  }

  /** Of the gateway's Service, by its address: connections go through kube-proxy. */
  async url(): Promise<string> {
    const query = ['get', 'service', `${name}-gateway`, '-o', 'jsonpath={.spec.clusterIP}:{.spec.ports[0].port}'];
    return new URL(`http://${await this.kubectl(query)}`).origin;
  }

  async logIn(): Promise<Client> {
    return logIn(await this.url());
  }

  /** The pods of the six services, or of one; not those of Jobs. */
  async pods(service?: ServiceName): Promise<Json[]> {
    const services = service ? [service] : serviceNames;
    const selector = `app.kubernetes.io/component in (${services.join(',')})`;
    return JSON.parse(await this.kubectl(['get', 'pods', '-l', selector, '-o', 'json'])).items;
  }

  /** Waits until every Deployment is as it should be. */
  async settled(): Promise<void> {
    for (const service of serviceNames) {
      await this.kubectl(['rollout', 'status', `deployment/${name}-${service}`, `--timeout=${timeLimit}`]);
    }
  }

  /** Waits until the gateway says that the whole is ready: a name that did not exist a moment ago is asked for again by and by. */
  async untilReady(): Promise<void> {
    const url = await this.url();
    await until(async () => {
      const answer = await fetch(`${url}/api/system/ready`).catch(() => null);
      return answer !== null && JSON.parse(await answer.text()).status === 'ready';
    }, readyLimitMs);
  }

  /** Takes all of it away: namespace, volumes, database. */
  async remove(): Promise<void> {
    await tryCommand('helm', ['uninstall', name, '-n', this.namespace, '--no-hooks']);
    await kubectl(['delete', 'namespace', this.namespace, '--wait=false', '--ignore-not-found']);
    await this.database.drop();
  }
}

/** What a cluster wants of every release, such as another storage class; as JSON. */
function valuesOfThisCluster(): Json {
  return JSON.parse(process.env['STOWAGE_CLUSTER_VALUES'] ?? '{}');
}

/** What every release of the tests has; the rest is the chart's own default. */
function baseValues(tag: string): Json {
  return {
    image: { repository: process.env['STOWAGE_CLUSTER_IMAGE'] ?? 'localhost/stowage', tag },
    database: { existingSecret: { name: 'database', key: 'url' }, connections: 5 },
    nats: { existingSecret: { name: 'nats', key: 'url' } },
    admin: { existingSecret: { name: 'admin', key: 'password' } },
    // Those of deps.yaml.
    networkPolicy: { storage: { ports: [9000, 8080] } },
  };
}

function secret(namespace: string, secretName: string, stringData: Record<string, string>): Json {
  return { apiVersion: 'v1', kind: 'Secret', metadata: { name: secretName, namespace }, stringData };
}

/** Every service with that many pods; more than one backend-registry shares a volume. */
export function replicated(replicas: number): Json {
  return {
    services: Object.fromEntries(serviceNames.map((service) => [service, { replicas }])),
    persistence: { accessMode: 'ReadWriteMany', size: '1Gi' },
  };
}

/** One pod of every service, small enough to fit beside other releases, with settings of its own. */
export function alone({ STOWAGE_PUBLIC_URL: publicUrl = '', ...settings }: Record<string, string>): Json {
  const resources = { requests: { cpu: '10m', memory: '96Mi' } };
  return {
    services: Object.fromEntries(serviceNames.map((service) => [service, { replicas: 1, resources }])),
    publicUrl,
    settings,
  };
}
