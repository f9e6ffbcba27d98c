import { describe, expect, test } from '@jest/globals';
import { describeChart, kubernetesVersions, nameOf, ofKind, podsOf, renderChart } from '../support/chart.ts';
import { everything, minimal, valuesCases } from '../support/chart-values.ts';
import { canValidate, schemaMistakes } from '../support/kubernetes-schemas.ts';
import type { Json } from '../support/client.ts';

const cases = Object.entries(valuesCases);
const services = ['gateway', 'catalog', 'upload', 'backend-registry', 'placement', 'export'];

describeChart('what the chart makes', () => {
  describe.each(kubernetesVersions)('for Kubernetes %s', (kubeVersion) => {
    const check = canValidate() || process.env['CI'] ? test : test.skip;
    check.each(cases)('is as its schemas want, with %s values', async (_name, { values, options }) => {
      const objects = await renderChart(values, { ...options, kubeVersion });
      expect(schemaMistakes(objects, kubeVersion)).toBe('');
    });
  });

  test.each(cases)('has each object once, in the namespace of the release, with %s values', async (_name, given) => {
    const objects = await renderChart(given.values, given.options);
    const names = objects.map((object) => `${object.apiVersion} ${nameOf(object)}`);
    expect(names).toEqual([...new Set(names)]);
    expect(new Set(objects.map(({ metadata }) => metadata['namespace']))).toEqual(new Set(['ns']));
  });

  test.each(cases)('is a Deployment and a Service for each of the six, with %s values', async (_name, given) => {
    const objects = await renderChart(given.values, given.options);
    for (const kind of ['Deployment', 'Service']) {
      const names = ofKind(objects, kind).map(({ metadata }) => metadata.name);
      expect(names).toEqual(expect.arrayContaining(services.map((service) => `rel-stowage-${service}`)));
    }
  });

  test('has names and label values of 63 characters at most, room for a hash where pods carry it, with a long release name', async () => {
    const release = `r${'x'.repeat(51)}z`;
    for (const values of [everything, valuesCases['bundled']?.values ?? {}]) {
      for (const object of await renderChart(values, { release })) {
        const room = /^(StatefulSet|CronJob)$/.test(object.kind) ? 11 : 0;
        expect(nameOf(object)).toMatch(new RegExp(`^\\w+/[a-z0-9]([-a-z0-9]{0,${61 - room}}[a-z0-9])$`));
        const labels: string[] = Object.values(object.metadata['labels'] ?? {});
        expect(labels.filter((label) => label.length > 63)).toEqual([]);
      }
    }
  });

  test('is found by selectors that hold for the release, the name and the part alone: they can never change', async () => {
    const selectors = async (values: Json): Promise<unknown[]> =>
      ofKind(await renderChart(values), 'Deployment').map((object) => object['spec'].selector);
    const before = await selectors(minimal);
    expect(before).toEqual(
      [...services].sort().map((service) => ({
        matchLabels: {
          'app.kubernetes.io/name': 'stowage',
          'app.kubernetes.io/instance': 'rel',
          'app.kubernetes.io/component': service,
        },
      })),
    );
    expect(await selectors({ ...everything, image: { tag: 'next' } })).toEqual(before);
  });

  test('carries the recommended labels and the common ones on each object, and on each pod', async () => {
    const objects = await renderChart(everything);
    const standard = { 'app.kubernetes.io/name': 'stowage', 'app.kubernetes.io/instance': 'rel', team: 'storage' };
    for (const object of objects) {
      expect({ [nameOf(object)]: object.metadata['labels'] }).toEqual({
        [nameOf(object)]: expect.objectContaining({
          ...standard,
          'app.kubernetes.io/component': expect.any(String),
          'app.kubernetes.io/managed-by': 'Helm',
          'helm.sh/chart': expect.stringMatching(/^stowage-/),
        }),
      });
      expect(object.metadata['annotations']).toMatchObject({ 'example.com/owner': 'storage' });
    }
    for (const pod of podsOf(objects)) expect(pod.labels).toMatchObject(standard);
  });

  test('has labels that are text, also where the release and the namespace are called like numbers', async () => {
    const objects = await renderChart(minimal, { release: '123', namespace: '456' });
    const labels = objects.flatMap(({ metadata }) => [metadata['namespace'], ...Object.values(metadata['labels'])]);
    expect(labels.filter((label) => typeof label !== 'string')).toEqual([]);
  });

  test('does not collide with a second release in the same namespace', async () => {
    for (const values of [everything, valuesCases['bundled']?.values ?? {}]) {
      const long = 'x'.repeat(50);
      const names = [`${long}one`, `${long}two`];
      const [one, two] = await Promise.all(names.map((release) => renderChart(values, { release })));
      const taken = new Set(one?.map(nameOf));
      expect(two?.map(nameOf).filter((name) => taken.has(name))).toEqual([]);
    }
  });

  test('never selects the pods of a second release', async () => {
    const [one, two] = await Promise.all(['one', 'two'].map((release) => renderChart(everything, { release })));
    const others = podsOf(two ?? []).map(({ labels }) => labels);
    for (const object of one ?? []) {
      for (const selector of selectorsOf(object)) {
        const chosen = others.filter((labels) =>
          Object.entries(selector).every(([key, value]) => labels[key] === value),
        );
        expect({ [nameOf(object)]: chosen }).toEqual({ [nameOf(object)]: [] });
      }
    }
  });
});

/** Every selector of pods in an object, wherever it stands; those with a selector of namespaces beside it look elsewhere. */
function selectorsOf(value: unknown): Record<string, string>[] {
  if (Array.isArray(value)) return value.flatMap(selectorsOf);
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]: [string, Json]) => {
    if (['podSelector', 'labelSelector'].includes(key)) return inner['matchLabels'] ? [inner['matchLabels']] : [];
    if (key === 'selector') return [inner['matchLabels'] ?? inner];
    return selectorsOf(inner);
  });
}
