import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { expectStatus, sha256, until } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { apply } from '@stowage/tests/support/cluster/commands';
import { nameOf, password, serverSettings, user } from '@stowage/tests/support/cluster/dependencies';
import { Release } from '@stowage/tests/support/cluster/release';
import { s3Server } from '@stowage/tests/support/real-servers';
import { makeBucket } from '@stowage/tests/support/remote-backends';

const namespace = 'stowage-declared';
const limitMs = 90_000;
let release: Release;
let values: Json;

beforeAll(async () => {
  Object.assign(process.env, await serverSettings());
  const server = s3Server();
  if (!server) throw new Error('there is no S3 server among the dependencies');
  const archive = {
    name: 'archive',
    type: 's3',
    default: true,
    config: {
      endpoint: `http://${nameOf('s3')}`,
      region: 'us-east-1',
      bucket: await makeBucket(server),
      force_path_style: true,
      access_key_id: { secret_ref: { name: 'archive', key: 'id' } },
      secret_access_key: { secret_ref: { name: 'archive', key: 'secret' } },
    },
  };
  values = {
    // Two registries with no volume at all: content lands on S3.
    defaultBackend: 'none',
    persistence: { enabled: false },
    services: { 'backend-registry': { replicas: 2 } },
    backends: [archive],
    policies: [{ file_class: 'default', backends: ['archive'], replicas: 1 }],
  };
  release = await Release.prepare({ namespace, values });
  await setSecret(password);
  await release.helm('install');
});

afterAll(() => release.remove());

async function setSecret(secret: string): Promise<void> {
  await apply({
    ...{ apiVersion: 'v1', kind: 'Secret', metadata: { name: 'archive', namespace } },
    stringData: { id: user, secret },
  });
}

async function archive(root: Client): Promise<Json> {
  const { json } = expectStatus(await root.get('/api/backends?limit=1000'), 200);
  return json['items'].find(({ name }: Json) => name === 'archive');
}

async function untilHealth(root: Client, status: string): Promise<void> {
  await until(async () => {
    const { id } = await archive(root);
    const { json } = expectStatus(await root.post(`/api/backends/${id}/check`), 200);
    return json['health'].status === status;
  }, limitMs);
}

test('a declared backend with a secret by reference is where uploads land, with its policy', async () => {
  const root = await release.logIn();
  const backend = await archive(root);
  expect(backend).toMatchObject({
    is_default: true,
    secret_fields: expect.arrayContaining(['access_key_id', 'secret_access_key']),
    secret_refs: { secret_access_key: { name: 'archive', key: 'secret' } },
    health: { status: 'healthy' },
  });
  expect(JSON.stringify(backend)).not.toContain(password);
  const policy = expectStatus(await root.get('/api/policies/placement/default'), 200).json;
  expect(policy).toMatchObject({ backends: [backend['id']], replicas: 1 });
  const content = 'lands on S3';
  const file = await root.putFile('landed.txt', content);
  expect(sha256((await root.get(`/api/files/${file['id']}/download`)).bytes)).toBe(sha256(content));
});

test('T67 nothing but backend-registry has a token of Kubernetes', async () => {
  for (const pod of await release.pods()) {
    const isRegistry = pod['metadata'].labels['app.kubernetes.io/component'] === 'backend-registry';
    const mounts: Json[] = pod['spec'].containers.flatMap((container: Json) => container['volumeMounts']);
    const hasToken = mounts.some(({ mountPath }) => mountPath === '/var/run/secrets/kubernetes.io/serviceaccount');
    expect(hasToken).toBe(isRegistry);
  }
});

test('a Secret that is changed changes the credential, and no pod starts again', async () => {
  const before = (await release.pods()).map((pod) => pod['metadata'].uid).sort();
  const root = await release.logIn();
  await setSecret('not the password');
  await untilHealth(root, 'unhealthy');
  await setSecret(password);
  await untilHealth(root, 'healthy');
  expect((await release.pods()).map((pod) => pod['metadata'].uid).sort()).toEqual(before);
});

test('a backend that is refused fails the upgrade', async () => {
  const refused = { name: 'refused', type: 's3', config: { endpoint: 'http://169.254.169.254', bucket: 'b' } };
  const upgrade = release.upgrade({
    values: { ...values, backends: [...values['backends'], refused], apply: { backoffLimit: 0 } },
  });
  await expect(upgrade).rejects.toThrow(/helm upgrade/);
  const log = await release.kubectl(['logs', 'job/stowage-apply']);
  expect(log).toMatch(/refused/);
  await release.upgrade({ values });
  expect((await archive(await release.logIn()))['is_default']).toBe(true);
});
