import { expect, test } from '@jest/globals';
import { X509Certificate } from 'node:crypto';
import { describeChart, find, nameOf, ofKind, podsOf, renderChart } from '../support/chart.ts';
import type { KubernetesObject } from '../support/chart.ts';
import { bundled, everything, minimal, valuesCases } from '../support/chart-values.ts';
import { findCanaries, secret } from '../support/canaries.ts';
import type { Json } from '../support/client.ts';

const databasePassword = 'CanaryOfTheDatabase17';
const natsPassword = 'CanaryOfNats4711';
const bundledPassword = 'CanaryOfBundledServers23';

/** Variables that hold a secret in themselves; the names of files are in variables that end with _FILE. */
const secretVariable = /(PASSWORD|SECRET_KEYS|TOKEN|CREDS|_URL)$/;

function withoutSecrets(objects: readonly KubernetesObject[]): string {
  return JSON.stringify(objects.filter(({ kind }) => kind !== 'Secret'));
}

/** Every secret that some Secret of the release holds, as it is and in base64. */
function madeSecrets(objects: readonly KubernetesObject[]): { what: string; word: string }[] {
  return ofKind(objects, 'Secret').flatMap((object) =>
    Object.entries<string>({ ...object['data'], ...object['stringData'] })
      // The public half of a pair, and the name of the admin, are none.
      .filter(([key]) => !['ca.crt', 'tls.crt', 'username'].includes(key))
      .map(([key, word]) => ({ what: `${nameOf(object)} ${key}`, word })),
  );
}

describeChart('secrets (T69)', () => {
  test('that values hold stand in Secrets alone: in no environment, argument, ConfigMap or annotation', async () => {
    const given = {
      database: { url: `postgres://stowage:${databasePassword}@db:5432/stowage` },
      nats: { url: `nats://me:${natsPassword}@nats:4222` },
    };
    const objects = await renderChart(given);
    const canaries = [secret('database', databasePassword), secret('NATS', natsPassword)];
    expect(findCanaries(withoutSecrets(objects), canaries)).toEqual([]);
    expect(JSON.stringify(objects)).toContain(Buffer.from(given.database.url).toString('base64'));
    const own = await renderChart({ bundled: { postgresql: { enabled: true, password: bundledPassword } } });
    expect(findCanaries(withoutSecrets(own), [secret('bundled', bundledPassword)])).toEqual([]);
  });

  test.each(Object.entries(valuesCases))(
    'that the chart makes stand in Secrets alone, with %s values',
    async (_name, given) => {
      const objects = await renderChart(given.values, given.options);
      const text = withoutSecrets(objects);
      for (const { what, word } of madeSecrets(objects)) {
        for (const form of [word, Buffer.from(word, 'base64').toString()]) {
          expect([what, form.length > 7 && text.includes(JSON.stringify(form).slice(1, -1))]).toEqual([what, false]);
        }
      }
    },
  );

  test.each(Object.entries(valuesCases))(
    'reach pods as files that others can not read, with %s values',
    async (_name, given) => {
      for (const { owner, spec, containers } of podsOf(await renderChart(given.values, given.options))) {
        for (const volume of spec['volumes'] as Json[]) {
          const holdsSecrets =
            volume['secret'] ?? (volume['projected']?.sources ?? []).some((source: Json) => source['secret']);
          if (!holdsSecrets) continue;
          expect([owner, volume['name'], (volume['secret'] ?? volume['projected']).defaultMode]).toEqual([
            owner,
            volume['name'],
            0o440,
          ]);
        }
        for (const container of containers) {
          expect(container['envFrom']).toBeUndefined();
          for (const { name, value, valueFrom } of container['env'] ?? []) {
            expect([owner, name, valueFrom]).toEqual([owner, name, undefined]);
            const isAddress = /^https?:\/\/[^@]+$/.test(value);
            expect([owner, name, secretVariable.test(name) && !isAddress]).toEqual([owner, name, false]);
          }
        }
      }
    },
  );

  test('are handed to those alone that use them', async () => {
    const objects = await renderChart(everything);
    const users = (path: string): string[] =>
      podsOf(objects)
        .filter(({ spec }) => JSON.stringify(spec['volumes']).includes(`"path":"${path}"`))
        .map(({ owner }) => owner.replace(/^.*stowage-/, ''))
        .sort();
    expect(users('seal-keys')).toEqual(['backend-registry']);
    expect(users('nats-url')).toEqual(['placement']);
    expect(users('admin-password')).toEqual(['apply', 'gateway', 'test']);
    expect(users('database-url')).toEqual([
      'backend-registry',
      'catalog',
      'export',
      'gateway',
      'migrate',
      'placement',
      'upload',
    ]);
  });

  test('that are made once stay when the release goes, like the data that they open', async () => {
    const objects = await renderChart(bundled);
    for (const name of ['-admin', '-seal-keys', '-postgresql']) {
      expect(find(objects, 'Secret', name)['metadata'].annotations).toMatchObject({
        'helm.sh/resource-policy': 'keep',
      });
    }
    expect(find(objects, 'PersistentVolumeClaim', '-data')['metadata'].annotations).toMatchObject({
      'helm.sh/resource-policy': 'keep',
    });
  });

  test('that are made are long, and others each time', async () => {
    const made = await Promise.all(['a', 'b'].map((release) => renderChart(minimal, { release, namespace: 'made' })));
    const [passwords, keys] = ['-admin', '-seal-keys'].map((name) =>
      made.map((objects) => Object.values<string>(find(objects, 'Secret', name)['data']).at(-1) ?? ''),
    );
    const [one = '', two] = passwords?.map((word) => Buffer.from(word, 'base64').toString()) ?? [];
    expect(one).toMatch(/^[A-Za-z0-9]{24,}$/);
    expect(one).not.toBe(two);
    const [, key = ''] = Buffer.from(keys?.[0] ?? '', 'base64')
      .toString()
      .split(':');
    expect(Buffer.from(key, 'base64')).toHaveLength(32);
  });

  test('of one’s own are named, and none are made beside them', async () => {
    const objects = await renderChart(everything);
    expect(ofKind(objects, 'Secret').map(nameOf)).toEqual([]);
  });
});

describeChart('certificates', () => {
  const services = ['gateway', 'catalog', 'upload', 'backend-registry', 'placement', 'export'];

  test('of the chart name their service alone, and the key of their authority reaches no pod', async () => {
    const objects = await renderChart(minimal);
    for (const service of services) {
      const { data } = find(objects, 'Secret', `stowage-${service}-tls`);
      const read = (key: string): X509Certificate => new X509Certificate(Buffer.from(data[key], 'base64'));
      expect(read('tls.crt').subjectAltName).toBe(`DNS:${service}.rel.ns.stowage.internal`);
      expect(read('tls.crt').verify(read('ca.crt').publicKey)).toBe(true);
      expect(read('tls.crt').ca).toBe(false);
      const volumes = find(objects, 'Deployment', `-${service}`)['spec'].template.spec.volumes;
      expect(volumes).toContainEqual({
        name: 'tls',
        secret: { secretName: `rel-stowage-${service}-tls`, defaultMode: 0o440 },
      });
    }
    expect(JSON.stringify(podsOf(objects))).not.toContain('tls-ca');
  });

  test('of cert-manager are asked for by the same names, and mounted', async () => {
    const objects = await renderChart(everything);
    const issuerRef = { name: 'stowage-ca', kind: 'Issuer', group: 'cert-manager.io' };
    for (const service of services) {
      const { spec } = find(objects, 'Certificate', `stowage-${service}`);
      expect(spec).toMatchObject({ dnsNames: [`${service}.rel.ns.stowage.internal`], issuerRef });
      const { volumes } = find(objects, 'Deployment', `-${service}`)['spec'].template.spec;
      expect(volumes).toContainEqual({ name: 'tls', secret: { secretName: spec.secretName, defaultMode: 0o440 } });
    }
  });

  test('make the addresses of services https, and none of them plain', async () => {
    const addresses = async (values: Json): Promise<string[]> =>
      podsOf(await renderChart(values)).flatMap(({ containers }) =>
        (containers[0]?.['env'] ?? []).flatMap(({ name, value }: Json) => (/_BYTES$/.test(name) ? [value] : [])),
      );
    expect((await addresses(minimal)).filter((address) => !address.startsWith('https://'))).toEqual([]);
    const off = await addresses({ ...minimal, tls: { mode: 'off' } });
    expect(off.filter((address) => !address.startsWith('http://'))).toEqual([]);
  });
});
