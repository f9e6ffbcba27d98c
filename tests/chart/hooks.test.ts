import { expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { describeChart, find, nameOf, ofKind, renderChart } from '../support/chart.ts';
import type { KubernetesObject } from '../support/chart.ts';
import { bundled, everything, minimal } from '../support/chart-values.ts';
import type { Json } from '../support/client.ts';

function annotation(object: KubernetesObject, name: string): string {
  return object.metadata['annotations']?.[`helm.sh/${name}`] ?? '';
}

/** The objects that are hooks of an event, in the order that helm makes them in. */
function hooksOf(objects: readonly KubernetesObject[], event: string): KubernetesObject[] {
  const weight = (object: KubernetesObject): number => Number(annotation(object, 'hook-weight') || 0);
  return objects
    .filter((object) => annotation(object, 'hook').split(',').includes(event))
    .sort((a, b) => weight(a) - weight(b));
}

function environment(job: KubernetesObject): Json {
  const { containers } = (job['spec'].template ?? job)['spec'];
  return Object.fromEntries(containers[0].env.map(({ name, value }: Json) => [name, value]));
}

describeChart('hooks', () => {
  test.each(['pre-install', 'pre-upgrade'])('migrate the database before anything is changed: %s', async (event) => {
    const objects = await renderChart(minimal);
    expect(hooksOf(objects, event).map(nameOf)).toEqual([
      'NetworkPolicy/rel-stowage-migrate',
      'Job/rel-stowage-migrate',
    ]);
    const { spec } = find(objects, 'Job', '-migrate');
    expect(spec.template.spec.containers[0].args).toEqual(['migrate']);
    expect(spec.activeDeadlineSeconds).toBeGreaterThan(0);
  });

  test('bring along what the migration needs and the release does not have yet', async () => {
    const objects = await renderChart({ database: { url: 'postgres://user:password@db/stowage' } });
    for (const event of ['pre-install', 'pre-upgrade']) {
      const hooks = hooksOf(objects, event).map(nameOf);
      expect(hooks.at(-1)).toBe('Job/rel-stowage-migrate');
      expect(hooks).toContain('Secret/rel-stowage-migrate');
    }
    const mounted = JSON.stringify(find(objects, 'Job', '-migrate')['spec'].template.spec.volumes);
    expect(mounted).toContain('"name":"rel-stowage-migrate"');
    // Deployments can't mount it: it goes with the hook.
    expect(JSON.stringify(ofKind(objects, 'Deployment'))).not.toContain('rel-stowage-migrate');
  });

  test('of the first install with bundled PostgreSQL wait for nothing that comes after them', async () => {
    const objects = await renderChart(bundled);
    expect(hooksOf(objects, 'pre-install')).toEqual([]);
    const job = ofKind(objects, 'Job').find(({ metadata }) => metadata.name.includes('-migrate'));
    expect(job && annotation(job, 'hook')).toBe('');
  });

  test.each(['post-install', 'post-upgrade'])('apply what is declared once all is there: %s', async (event) => {
    expect(hooksOf(await renderChart(minimal), event)).toEqual([]);
    const objects = await renderChart(everything);
    expect(hooksOf(objects, event).map(nameOf)).toEqual(['Job/rel-stowage-apply']);
    const job = find(objects, 'Job', '-apply');
    expect(environment(job)).toMatchObject({
      STOWAGE_API_URL: 'http://rel-stowage-gateway.ns.svc:80',
      STOWAGE_DECLARED_FILE: '/etc/stowage/declared/declared.yaml',
      STOWAGE_ADMIN_PASSWORD_FILE: '/etc/stowage/secrets/admin-password',
    });
    const declared: Json = parse(find(objects, 'ConfigMap', '-declared')['data']['declared.yaml']);
    expect(declared).toEqual({ backends: everything['backends'], policies: everything['policies'] });
  });

  test('take the declared state from a ConfigMap of one’s own', async () => {
    const own = { name: 'ours', key: 'all.yaml' };
    const objects = await renderChart({ ...minimal, declaredConfigMap: own });
    expect(ofKind(objects, 'ConfigMap').map(nameOf)).not.toContain('ConfigMap/rel-stowage-declared');
    const { volumes } = find(objects, 'Job', '-apply')['spec'].template.spec;
    expect(volumes).toContainEqual({
      name: 'declared',
      configMap: { name: 'ours', items: [{ key: 'all.yaml', path: 'declared.yaml' }] },
    });
  });

  test('are made anew each time, go when they went well, and stay to be looked at when not; that of helm test stays', async () => {
    const objects = await renderChart(everything);
    const hooks = objects.filter((object) => annotation(object, 'hook') !== '');
    expect(hooks.length).toBeGreaterThanOrEqual(3);
    for (const hook of hooks) {
      expect([nameOf(hook), annotation(hook, 'hook-delete-policy')]).toEqual([
        nameOf(hook),
        annotation(hook, 'hook') === 'test' ? 'before-hook-creation' : 'before-hook-creation,hook-succeeded',
      ]);
    }
  });
});

describeChart('helm test', () => {
  test.each([
    [
      'through the public address',
      { ingress: { enabled: true, host: 'files.example.com' } },
      'https://files.example.com',
    ],
    ['through the gateway’s Service without one', {}, 'http://rel-stowage-gateway.ns.svc:80'],
    [
      'where it is told to',
      { test: { url: 'http://ingress.local' }, publicUrl: 'https://x.example' },
      'http://ingress.local',
    ],
  ])('tries it out %s', async (_where, values, url) => {
    const objects = await renderChart({ ...minimal, ...values });
    const [pod, ...more] = hooksOf(objects, 'test');
    expect(more).toEqual([]);
    // `helm test --logs` shows the log of a Pod, and of nothing else.
    expect(pod?.kind).toBe('Pod');
    expect(pod?.['spec'].restartPolicy).toBe('Never');
    expect(pod?.['spec'].containers[0].args).toEqual(['smoke']);
    expect(pod && environment(pod)).toMatchObject({ STOWAGE_API_URL: url, STOWAGE_ADMIN_USERNAME: 'admin' });
  });
});
