import { expect, test } from '@jest/globals';
import { describeChart, find, nameOf, ofKind, podsOf, renderChart } from '../support/chart.ts';
import type { PodTemplate } from '../support/chart.ts';
import { everything, minimal, valuesCases } from '../support/chart-values.ts';
import type { Json } from '../support/client.ts';

const cases = Object.entries(valuesCases);
const services = ['gateway', 'catalog', 'upload', 'backend-registry', 'placement', 'export'];

/** What of Pod Security `restricted`, and a little more, a pod does not keep. */
function breaches({ spec, containers }: PodTemplate): string[] {
  const rules: [string, boolean][] = [
    ['no namespaces of the host', !spec['hostNetwork'] && !spec['hostPID'] && !spec['hostIPC']],
    ['only harmless kinds of volumes', spec['volumes'].every(isHarmless)],
    ['empty folders have a size', spec['volumes'].every(hasSize)],
    ['no links to services in the environment', spec['enableServiceLinks'] === false],
    ['no sysctls', !spec['securityContext']?.sysctls],
    ...containers.flatMap((container) => containerRules(spec, container)),
  ];
  return rules.filter(([, holds]) => !holds).map(([rule]) => rule);
}

function isHarmless(volume: Json): boolean {
  const kinds = ['configMap', 'emptyDir', 'persistentVolumeClaim', 'projected', 'secret'];
  return Object.keys(volume).every((key) => key === 'name' || kinds.includes(key));
}

function hasSize({ name, emptyDir }: Json): boolean {
  return emptyDir === undefined || name === 'more' || typeof emptyDir['sizeLimit'] === 'string';
}

function containerRules(spec: Json, container: Json): [string, boolean][] {
  const own: Json = container['securityContext'] ?? {};
  const both: Json = { ...spec['securityContext'], ...own };
  return [
    ['not root', both['runAsNonRoot'] === true && both['runAsUser'] !== 0],
    ['no more privileges', own['allowPrivilegeEscalation'] === false && !own['privileged']],
    ['no capabilities', own['capabilities']?.drop?.includes('ALL') && !own['capabilities'].add],
    ['seccomp', both['seccompProfile']?.type === 'RuntimeDefault'],
    ['a root file system that can only be read', own['readOnlyRootFilesystem'] === true],
    ['no ports of the host', (container['ports'] ?? []).every((port: Json) => !port['hostPort'])],
    [
      'requests of CPU and memory',
      Boolean(container['resources']?.requests?.cpu && container['resources'].requests.memory),
    ],
    ['a limit of memory', Boolean(container['resources']?.limits?.memory)],
    [
      'an image with a tag or a digest',
      /[@:][\w.-]+(:\w+)?$/.test(container['image']) && !/:latest$/.test(container['image']),
    ],
  ];
}

describeChart('pods of the chart', () => {
  test.each(cases)('pass Pod Security restricted, hooks and tests too, with %s values (T66)', async (_name, given) => {
    const pods = podsOf(await renderChart(given.values, given.options));
    expect(pods.length).toBeGreaterThanOrEqual(8);
    expect(pods.map((pod) => [pod.owner, breaches(pod)]).filter(([, broken]) => broken?.length)).toEqual([]);
  });

  test.each(cases)(
    'have no token, but for backend-registry where Secrets are referred to, with %s values (T67)',
    async (_name, given) => {
      const objects = await renderChart(given.values, given.options);
      const withToken = podsOf(objects).filter(({ spec }) => spec['automountServiceAccountToken'] !== false);
      const refers = ofKind(objects, 'Role').length > 0;
      expect(withToken.map(({ owner }) => owner)).toEqual(refers ? ['Deployment/rel-stowage-backend-registry'] : []);
      for (const account of ofKind(objects, 'ServiceAccount'))
        expect(account['automountServiceAccountToken']).toBe(false);
      const projected = podsOf(objects).flatMap(({ spec }) =>
        spec['volumes'].flatMap((volume: Json) => volume['projected']?.sources ?? []),
      );
      expect(projected.filter((source: Json) => source['serviceAccountToken'])).toEqual([]);
    },
  );

  test('that have a token may read just the Secrets that are named (T67)', async () => {
    const objects = await renderChart({ ...everything, secretRefs: ['dav', 'other'] });
    expect(ofKind(objects, 'ClusterRole').concat(ofKind(objects, 'ClusterRoleBinding'))).toEqual([]);
    expect(ofKind(objects, 'Role').map((role) => role['rules'])).toEqual([
      [
        {
          apiGroups: [''],
          resources: ['secrets'],
          resourceNames: ['archive-s3', 'dav', 'other'],
          verbs: ['get', 'list', 'watch'],
        },
      ],
    ]);
    const [binding] = ofKind(objects, 'RoleBinding');
    const registry = find(objects, 'Deployment', '-backend-registry')['spec'].template.spec;
    expect(binding?.['subjects']).toEqual([
      { kind: 'ServiceAccount', name: registry.serviceAccountName, namespace: 'ns' },
    ]);
    const others = podsOf(objects).filter(({ owner }) => !owner.endsWith('backend-registry'));
    expect(others.map(({ spec }) => spec['serviceAccountName'])).not.toContain(registry.serviceAccountName);
  });

  test.each(services)('of %s are probed on the management port, and for liveness by health alone', async (service) => {
    const deployment = find(await renderChart(minimal), 'Deployment', `-${service}`);
    const [container] = deployment['spec'].template.spec.containers;
    expect(container.args).toEqual([service]);
    expect(container.ports).toContainEqual({ name: 'management', containerPort: 9090 });
    const health = { path: '/api/system/health', port: 'management' };
    expect(container.startupProbe.httpGet).toEqual(health);
    expect(container.livenessProbe.httpGet).toEqual(health);
    expect(container.readinessProbe.httpGet).toEqual({ path: '/api/system/ready', port: 'management' });
    // Migrations and a database that comes late take longer than any start.
    expect(container.startupProbe.periodSeconds * container.startupProbe.failureThreshold).toBeGreaterThanOrEqual(60);
  });

  test.each(services)('of %s stop in the time that they say they need', async (service) => {
    const drain = { delaySeconds: 7, timeoutSeconds: 90 };
    const deployment = find(await renderChart({ ...minimal, drain }), 'Deployment', `-${service}`);
    const { terminationGracePeriodSeconds, containers } = deployment['spec'].template.spec;
    const env = new Map(containers[0].env.map(({ name, value }: Json) => [name, value]));
    expect(env.get('STOWAGE_DRAIN_DELAY')).toBe('7s');
    expect(env.get('STOWAGE_DRAIN_TIMEOUT')).toBe('90s');
    expect(terminationGracePeriodSeconds).toBeGreaterThan(97);
  });

  test('of each service have a disruption budget that lets nodes be drained, and keeps the others', async () => {
    const objects = await renderChart(everything);
    for (const service of services) {
      const { spec } = find(objects, 'PodDisruptionBudget', `-${service}`);
      expect(spec).toMatchObject({ maxUnavailable: 1 });
      expect(spec.selector).toEqual(find(objects, 'Deployment', `-${service}`)['spec'].selector);
    }
  });

  test('of two replicas and more are spread, and replaced without one less', async () => {
    const objects = await renderChart({}, { file: 'deploy/values/production.yaml' });
    for (const service of services) {
      const { spec } = find(objects, 'Deployment', `-${service}`);
      const scaler = ofKind(objects, 'HorizontalPodAutoscaler').find(({ metadata }) =>
        metadata.name.endsWith(`-${service}`),
      );
      expect(spec.replicas ?? scaler?.['spec'].minReplicas).toBeGreaterThanOrEqual(2);
      expect(spec.strategy).toEqual({ type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 0, maxSurge: 1 } });
      expect(spec.template.spec.topologySpreadConstraints.map((one: Json) => one['topologyKey'])).toEqual(
        expect.arrayContaining(['kubernetes.io/hostname', 'topology.kubernetes.io/zone']),
      );
    }
  });

  test('that are scaled by themselves have no count of replicas in the Deployment', async () => {
    const objects = await renderChart(everything);
    for (const scaler of ofKind(objects, 'HorizontalPodAutoscaler')) {
      const { name, kind } = scaler['spec'].scaleTargetRef;
      expect(kind).toBe('Deployment');
      expect(find(objects, 'Deployment', name)['spec'].replicas).toBeUndefined();
    }
    expect(ofKind(objects, 'HorizontalPodAutoscaler').map(nameOf)).toContain(
      'HorizontalPodAutoscaler/rel-stowage-gateway',
    );
  });

  test('of backend-registry with a ReadWriteOnce volume are replaced one after the other', async () => {
    const objects = await renderChart(minimal);
    expect(find(objects, 'Deployment', '-backend-registry')['spec']).toMatchObject({
      replicas: 1,
      strategy: { type: 'Recreate' },
    });
    const many = {
      ...minimal,
      persistence: { accessMode: 'ReadWriteMany' },
      services: { 'backend-registry': { replicas: 3 } },
    };
    expect(find(await renderChart(many), 'Deployment', '-backend-registry')['spec']).toMatchObject({
      replicas: 3,
      strategy: { type: 'RollingUpdate' },
    });
  });

  test('take values of all services, and those of one over them', async () => {
    const values = {
      ...minimal,
      pods: { nodeSelector: { disk: 'fast' }, resources: { requests: { cpu: '150m' } } },
      services: { upload: { nodeSelector: { net: 'fast' }, resources: { limits: { memory: '2Gi' } } } },
    };
    const objects = await renderChart(values);
    const upload = find(objects, 'Deployment', '-upload')['spec'].template.spec;
    expect(upload.nodeSelector).toEqual({ disk: 'fast', net: 'fast' });
    expect(upload.containers[0].resources).toMatchObject({ requests: { cpu: '150m' }, limits: { memory: '2Gi' } });
    expect(find(objects, 'Deployment', '-catalog')['spec'].template.spec.nodeSelector).toEqual({ disk: 'fast' });
  });

  test('get what operators add: environment, volumes, pull secrets, priority, an authority of their own', async () => {
    for (const { owner, spec, containers } of podsOf(await renderChart(everything))) {
      if (!owner.startsWith('Deployment/')) continue;
      expect(spec).toMatchObject({ imagePullSecrets: [{ name: 'registry' }], priorityClassName: 'important' });
      expect(spec['volumes']).toContainEqual({ name: 'more', emptyDir: {} });
      expect(containers[0]?.['volumeMounts']).toContainEqual({ name: 'more', mountPath: '/more' });
      expect(containers[0]?.['env']).toContainEqual({ name: 'TZ', value: 'UTC' });
      expect(containers[0]?.['env']).toContainEqual({ name: 'NODE_EXTRA_CA_CERTS', value: expect.any(String) });
      expect(containers[0]?.['image']).toMatch(/@sha256:0+$/);
    }
  });
});
