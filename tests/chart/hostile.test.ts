import { expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { describeChart, find, ofKind, podsOf, renderChart } from '../support/chart.ts';
import { minimal } from '../support/chart-values.ts';
import type { Json } from '../support/client.ts';

/** Texts that mean something to YAML, to templates or to a shell. */
const hostile = [
  'a"b\'c`d',
  'line\nnext: line\n---\nkind: Pod',
  '{{ .Values.database }} {{ fail "x" }}',
  '*anchor &anchor !!str # no comment',
  ': - [ ] { } , % @ |  >',
  'yes',
  '0x10',
  '1e3',
  '~',
  '  spaces  ',
  'ü 文件 \u202e \u{1F4C1}',
  '$(STOWAGE_ADMIN_USERNAME) ${HOME}',
];

/** Places for free text, and how it is read back. */
const places: [string, (text: string) => Json, (objects: Awaited<ReturnType<typeof renderChart>>) => unknown][] = [
  [
    'an annotation of all objects',
    (text) => ({ commonAnnotations: { 'example.com/note': text } }),
    (objects) => find(objects, 'Deployment', '-catalog').metadata['annotations']['example.com/note'],
  ],
  [
    'an annotation of the ingress',
    (text) => ({ ingress: { enabled: true, host: 'x.example', annotations: { note: text } } }),
    (objects) => ofKind(objects, 'Ingress')[0]?.metadata['annotations'].note,
  ],
  [
    'an annotation of pods',
    (text) => ({ pods: { annotations: { note: text } } }),
    (objects) => find(objects, 'Deployment', '-upload')['spec'].template.metadata.annotations.note,
  ],
  [
    'a further variable',
    (text) => ({ pods: { extraEnv: [{ name: 'NOTE', value: text }] } }),
    (objects) => variable(objects, 'NOTE'),
  ],
  [
    'a setting',
    (text) => ({ settings: { STOWAGE_CORS_ORIGINS: text } }),
    (objects) => variable(objects, 'STOWAGE_CORS_ORIGINS'),
  ],
  [
    'a variable of OpenTelemetry',
    (text) => ({ telemetry: { otel: { OTEL_RESOURCE_ATTRIBUTES: text } } }),
    (objects) => variable(objects, 'OTEL_RESOURCE_ATTRIBUTES'),
  ],
  [
    'the admin’s name',
    (text) => ({ admin: { username: text } }),
    (objects) => variable(objects, 'STOWAGE_ADMIN_USERNAME', '-gateway'),
  ],
  [
    'the name of a backend',
    (text) => ({ backends: [{ name: text, type: 'webdav', config: { url: 'https://dav.example.com' } }] }),
    (objects) => parse(find(objects, 'ConfigMap', '-declared')['data']['declared.yaml']).backends[0].name,
  ],
  [
    'the address of a database',
    (text) => ({ database: { existingSecret: { name: '' }, url: `postgres://u:${text}@db/x` } }),
    (objects) =>
      Buffer.from(find(objects, 'Secret', '-database')['data'].url, 'base64')
        .toString()
        .slice(13, -5),
  ],
  ['the repository of the image', (text) => ({ image: { repository: text, tag: 'x' } }), imageOf],
  ['the tag of the image', (text) => ({ image: { repository: 'x', tag: text } }), imageOf],
  ['the size of the volume', (text) => ({ persistence: { size: text } }), () => 'rendered'],
  ['a class of storage', (text) => ({ persistence: { storageClass: text } }), () => 'rendered'],
  ['the name of a Secret', (text) => ({ sealKeys: { existingSecret: { name: text } } }), () => 'rendered'],
  ['the key of a Secret', (text) => ({ sealKeys: { existingSecret: { name: 'x', key: text } } }), () => 'rendered'],
  ['a host', (text) => ({ ingress: { enabled: true, host: text } }), () => 'rendered'],
  ['a public address', (text) => ({ publicUrl: text }), () => 'rendered'],
  ['an override of names', (text) => ({ fullnameOverride: text }), () => 'rendered'],
];

function variable(objects: Awaited<ReturnType<typeof renderChart>>, name: string, service = '-catalog'): unknown {
  const { containers } = find(objects, 'Deployment', service)['spec'].template.spec;
  return containers[0].env.find((one: Json) => one['name'] === name)?.value;
}

function imageOf(objects: Awaited<ReturnType<typeof renderChart>>): unknown {
  const image: string = podsOf(objects)[0]?.containers[0]?.['image'];
  return image.replace(/^x:|:x$/, '');
}

/** Well-formed in places that are no free text: a word of letters and digits is a name. */
const harmless = /^(yes|0x10|1e3)$/;

describeChart('values with hostile text', () => {
  test.each(places)('are refused or arrive as they are: %s', async (_what, valuesWith, readBack) => {
    const odd: unknown[] = [];
    for (const text of hostile) {
      const values = { ...minimal, tls: { mode: 'off' }, ...valuesWith(text) };
      const objects = await renderChart(values).catch((error: unknown) => String(error));
      // The schema refuses it, or a sentence does; a template that breaks is neither.
      if (typeof objects === 'string') {
        if (!/meet the specifications of the schema|These values can't work/.test(objects)) odd.push([text, objects]);
        continue;
      }
      const found = readBack(objects);
      if (found !== text && !(found === 'rendered' && harmless.test(text))) odd.push([text, found]);
      if (objects.some(({ kind, metadata }) => kind === 'Pod' && !metadata.name.endsWith('-test')))
        odd.push([text, 'a Pod']);
    }
    expect(odd).toEqual([]);
  });
});
