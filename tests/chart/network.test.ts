import { describe, expect, test } from '@jest/globals';
import { describeChart, ofKind, podsOf, renderChart } from '../support/chart.ts';
import type { KubernetesObject } from '../support/chart.ts';
import { bundled, everything, minimal, valuesCases } from '../support/chart-values.ts';
import type { Json } from '../support/client.ts';
import { mayBeReached, mayReach } from '../support/network-policies.ts';

const services = ['gateway', 'catalog', 'upload', 'backend-registry', 'placement', 'export'] as const;
const stranger = { labels: { app: 'stranger' } };
const elsewhere = { labels: { app: 'stranger' }, namespace: { 'kubernetes.io/metadata.name': 'other' } };
const outside = { address: '203.0.113.7' };
const metadata = { address: '169.254.169.254' };

/** Who calls whom, and at which ports; nobody else may. */
const calls: Record<string, Record<string, number[]>> = {
  gateway: {
    catalog: [9000],
    upload: [9000, 9001],
    'backend-registry': [9000, 9001],
    placement: [9000],
    export: [9000, 9001],
  },
  catalog: {},
  upload: { catalog: [9000], 'backend-registry': [9000, 9001], placement: [9000] },
  'backend-registry': { catalog: [9000] },
  placement: { catalog: [9000], 'backend-registry': [9000, 9001] },
  export: { 'backend-registry': [9000, 9001] },
};

function pod(component: string): Record<string, string> {
  return {
    'app.kubernetes.io/name': 'stowage',
    'app.kubernetes.io/instance': 'rel',
    'app.kubernetes.io/component': component,
  };
}

function reachable(objects: KubernetesObject[], from: string, to: string, port: number): boolean {
  return (
    mayReach(objects, pod(from), { labels: pod(to) }, port) &&
    mayBeReached(objects, pod(to), { labels: pod(from) }, port)
  );
}

/** Ports below this at which a pod may reach a peer. */
function openPorts(objects: KubernetesObject[], component: string, to: Parameters<typeof mayReach>[2]): number[] {
  const tried = [22, 53, 80, 443, 2379, 4222, 4318, 5432, 6443, 8080, 8443, 9000, 9001, 9090, 9443, 10250];
  return tried.filter((port) => mayReach(objects, pod(component), to, port));
}

describeChart('network policies (T68)', () => {
  test.each(Object.entries(valuesCases))('are about every pod, both ways, with %s values', async (_name, given) => {
    const objects = await renderChart(given.values, given.options);
    for (const { labels, owner } of podsOf(objects)) {
      expect([owner, mayReach(objects, labels, outside, 25)]).toEqual([owner, false]);
      expect([owner, mayBeReached(objects, labels, elsewhere, 25)]).toEqual([owner, false]);
      expect([owner, mayReach(objects, labels, metadata, 80)]).toEqual([owner, false]);
    }
  });

  describe.each(services)('of %s', (from) => {
    test.each(services)('let it call %s at the ports that it uses, and at no other', async (to) => {
      const objects = await renderChart(minimal);
      const wanted = from === to ? [] : (calls[from]?.[to] ?? []);
      expect([8080, 9000, 9001, 9090].filter((port) => reachable(objects, from, to, port))).toEqual(wanted);
    });
  });

  test('let the calls through that the services are told to make', async () => {
    const objects = await renderChart(everything);
    for (const deployment of ofKind(objects, 'Deployment')) {
      const caller: string = deployment['metadata'].labels['app.kubernetes.io/component'];
      const env: Json[] = deployment['spec'].template.spec.containers[0].env;
      const told = env.flatMap(({ name, value }) => (/_(RPC|BYTES)$/.exec(name) ? [String(value)] : []));
      for (const address of told) {
        const [, callee = '', port = ''] = /rel-stowage-([a-z-]+)\.ns\.svc:(\d+)$/.exec(address) ?? [];
        expect([caller, address, reachable(objects, caller, callee, Number(port))]).toEqual([caller, address, true]);
      }
    }
  });

  test.each(services)('keep others in the namespace and elsewhere away from %s', async (service) => {
    const objects = await renderChart(minimal);
    const open = [8080, 9000, 9001, 9090].filter((port) =>
      [stranger, elsewhere, outside].some((peer) => mayBeReached(objects, pod(service), peer, port)),
    );
    expect(open).toEqual(service === 'gateway' ? [8080] : []);
  });

  test('let nobody but those that are named reach the gateway, where any are', async () => {
    const { values } = valuesCases['route'] ?? { values: {} };
    const objects = await renderChart(values);
    const gateways = { labels: { app: 'envoy' }, namespace: { name: 'gateways' } };
    expect(mayBeReached(objects, pod('gateway'), gateways, 8080)).toBe(true);
    expect(mayBeReached(objects, pod('gateway'), elsewhere, 8080)).toBe(false);
    expect(mayBeReached(objects, pod('gateway'), { labels: pod('test') }, 8080)).toBe(true);
  });

  test('let metrics be read where somebody is there to read them', async () => {
    const named = {
      ...minimal,
      networkPolicy: { metricsFrom: [{ namespaceSelector: { matchLabels: { name: 'monitoring' } } }] },
    };
    const prometheus = { labels: { app: 'prometheus' }, namespace: { name: 'monitoring' } };
    for (const service of services) {
      expect(mayBeReached(await renderChart(minimal), pod(service), prometheus, 9090)).toBe(false);
      expect(mayBeReached(await renderChart(everything), pod(service), prometheus, 9090)).toBe(true);
      expect(mayBeReached(await renderChart(named), pod(service), prometheus, 9090)).toBe(true);
      expect(mayBeReached(await renderChart(named), pod(service), elsewhere, 9090)).toBe(false);
    }
  });

  test('let out to names, the database, the collector, NATS and storage alone, each where it is used', async () => {
    const few = await renderChart(minimal);
    for (const service of services) {
      const storage = service === 'backend-registry' ? [80, 443] : [];
      expect([service, openPorts(few, service, outside)]).toEqual([service, [53, ...storage, 5432]]);
    }
    const all = await renderChart(everything);
    const more: Record<string, number[]> = { placement: [4222], 'backend-registry': [80, 443, 6443, 9443] };
    for (const service of services) {
      const wanted = [53, 4318, 5432, ...(more[service] ?? [])].sort((a, b) => a - b);
      expect([service, openPorts(all, service, outside)]).toEqual([service, wanted]);
    }
    expect(openPorts(all, 'migrate', outside)).toEqual([53, 5432]);
    expect(openPorts(all, 'apply', outside)).toEqual([53]);
    expect(openPorts(all, 'apply', { labels: pod('gateway') })).toEqual([53, 8080]);
  });

  test('let out to named peers alone, where they are named', async () => {
    const to = [{ ipBlock: { cidr: '10.1.2.3/32' } }];
    const objects = await renderChart({
      ...minimal,
      networkPolicy: { database: { to, ports: [6432] }, storage: { to } },
    });
    expect(openPorts(objects, 'catalog', outside)).toEqual([53]);
    expect(mayReach(objects, pod('catalog'), { address: '10.1.2.3' }, 6432)).toBe(true);
    expect(openPorts(objects, 'backend-registry', { address: '10.1.2.3' })).toEqual([53, 80, 443]);
  });

  test('let out to every server that an address names', async () => {
    const objects = await renderChart({
      database: { url: 'postgres://u:p@a:6443,b:9443/d?sslmode=require' },
      nats: { url: 'nats://u:p@a:8080,nats://b:4222' },
    });
    expect(openPorts(objects, 'catalog', outside)).toEqual([53, 6443, 9443]);
    expect(openPorts(objects, 'placement', outside)).toEqual([53, 4222, 6443, 8080, 9443]);
  });

  test('let `helm test` out to the public address, or where that leads to', async () => {
    const publicUrl = 'https://files.example.com';
    expect(openPorts(await renderChart({ ...minimal, publicUrl }), 'test', outside)).toEqual([53, 443]);
    const networkPolicy = { test: { ports: [8443] } };
    expect(openPorts(await renderChart({ ...minimal, publicUrl, networkPolicy }), 'test', outside)).toEqual([53, 8443]);
  });

  test('never let out to where clouds answer metadata, not by the ports of storage either', async () => {
    const objects = await renderChart(everything);
    const addresses = [
      '169.254.169.254',
      '169.254.170.2',
      '100.100.100.200',
      '168.63.129.16',
      'fd00:ec2::254',
      'fe80::1',
    ];
    for (const service of services) {
      for (const address of addresses) {
        expect([service, address, openPorts(objects, service, { address })]).toEqual([service, address, [53]]);
      }
    }
  });

  test('let bundled servers be reached by those that use them alone, and reach nothing', async () => {
    const objects = await renderChart(bundled);
    const users = { postgresql: [5432, ...services, 'migrate'], nats: [4222, 'placement'] } as const;
    for (const [server, [port, ...callers]] of Object.entries(users)) {
      for (const caller of [...services, 'migrate', 'apply', 'test']) {
        expect([caller, reachable(objects, caller, server, port)]).toEqual([
          caller,
          callers.some((one) => one === caller),
        ]);
      }
      expect(mayBeReached(objects, pod(server), stranger, port)).toBe(false);
      expect(openPorts(objects, server, outside)).toEqual([]);
    }
  });

  test('are left to the operator where they are switched off', async () => {
    expect(ofKind(await renderChart({ ...minimal, networkPolicy: { enabled: false } }), 'NetworkPolicy')).toEqual([]);
  });
});
