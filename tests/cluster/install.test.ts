import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Json } from '@stowage/tests/support/client';
import { adminPassword } from '@stowage/tests/support/system';
import { kubectl } from '@stowage/tests/support/cluster/commands';
import { password } from '@stowage/tests/support/cluster/dependencies';
import { callFromNeighbour } from '@stowage/tests/support/cluster/neighbour';
import { Release, replicated, serviceNames } from '@stowage/tests/support/cluster/release';
import { say } from '@stowage/tests/support/cluster/report';

const namespace = 'stowage-install';
const largestImage = 350e6;
const lookUp = '/stowage.catalog.v1.CatalogService/GetNode';
let release: Release;

beforeAll(async () => {
  release = await Release.prepare({ namespace, values: replicated(2) });
  const seconds = await release.helm('install');
  say(`helm install, two pods of each service, to all Ready: ${seconds.toFixed(1)} s (aim: 90 s)`);
});

afterAll(() => release.remove());

test('runs two pods of each service, none of which started twice, in a namespace that only takes restricted ones', async () => {
  const pods = await release.pods();
  const counts = serviceNames.map((service) => pods.filter((pod) => componentOf(pod) === service).length);
  expect(counts).toEqual(serviceNames.map(() => 2));
  for (const pod of pods) expect(restartsOf(pod)).toBe(0);
  const enforced = 'jsonpath={.metadata.labels.pod-security\\.kubernetes\\.io/enforce}';
  expect(await kubectl(['get', 'namespace', namespace, '-o', enforced])).toBe('restricted');
});

test('answers that all of it is ready, through the Service', async () => {
  await release.untilReady();
});

test('passes helm test', async () => {
  expect(await release.test()).toMatch(/Phase:\s+Succeeded/);
});

test('an upgrade that changes nothing rolls no pod', async () => {
  const before = (await release.pods()).map(idOf).sort();
  await release.upgrade();
  await release.settled();
  expect((await release.pods()).map(idOf).sort()).toEqual(before);
});

describe('A neighbour', () => {
  const catalog = { host: `stowage-catalog.${namespace}.svc`, port: 9000, method: lookUp };

  test('T68 does not get through to an inner port', async () => {
    const { connection } = await callFromNeighbour(release, catalog);
    expect(connection).not.toBe('open');
  });

  test('T41 that is taken for one of us by its labels can call nothing without a certificate', async () => {
    const labels = {
      'app.kubernetes.io/name': 'stowage',
      'app.kubernetes.io/instance': 'stowage',
      'app.kubernetes.io/component': 'upload',
      'app.kubernetes.io/part-of': 'stowage',
    };
    const attempt = await callFromNeighbour(release, catalog, labels);
    expect(attempt.connection).toBe('open');
    expect(attempt.plain).not.toMatch(/^\d+$/);
    expect(attempt.withoutCertificate).not.toMatch(/^\d+$/);
  });
});

test('T69 the environment of no process holds a secret', async () => {
  const seal = await release.kubectl(['get', 'secret', 'stowage-seal-keys', '-o', 'jsonpath={.data.keys}']);
  const sealKey = Buffer.from(seal, 'base64').toString();
  for (const service of serviceNames) {
    const [pod] = await release.pods(service);
    const environment = await release.kubectl(['exec', pod?.['metadata'].name, '--', 'cat', '/proc/1/environ']);
    expect(environment).toContain('STOWAGE_DATABASE_URL_FILE=');
    for (const value of [adminPassword, password, sealKey]) expect(environment).not.toContain(value);
    expect(JSON.stringify(pod?.['spec'].containers)).not.toContain(password);
  }
});

test('T66 a pod writes nothing but its /tmp', async () => {
  const [pod] = await release.pods('gateway');
  const name = pod?.['metadata'].name;
  await release.kubectl(['exec', name, '--', 'touch', '/tmp/there']);
  await expect(release.kubectl(['exec', name, '--', 'touch', '/app/there'])).rejects.toThrow(/Read-only file system/);
});

describe('The image', () => {
  test('is small', async () => {
    const [pod] = await release.pods('gateway');
    const image: string = pod?.['spec'].containers[0].image;
    const nodes = JSON.parse(await kubectl(['get', 'nodes', '-o', 'json']));
    const images: Json[] = nodes.items.flatMap((node: Json) => node['status'].images);
    const size = images.find(({ names }) => names?.includes(image))?.['sizeBytes'];
    say(`the image takes ${(size / 1e6).toFixed(0)} MB`);
    expect(size).toBeLessThan(largestImage);
  });

  test('T70 tells what is in it', async () => {
    const [pod] = await release.pods('gateway');
    const sbom = await release.kubectl(['exec', pod?.['metadata'].name, '--', 'cat', '/app/sbom.cdx.json']);
    expect(JSON.parse(sbom)).toMatchObject({ bomFormat: 'CycloneDX' });
  });
});

function componentOf(pod: Json): string {
  return pod['metadata'].labels['app.kubernetes.io/component'];
}

function idOf(pod: Json): string {
  return pod['metadata'].uid;
}

function restartsOf(pod: Json): number {
  return pod['status'].containerStatuses.reduce((sum: number, status: Json) => sum + status['restartCount'], 0);
}
