import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import type { JsonObject, MessageInitShape } from '@bufbuild/protobuf';
import path from 'node:path';
import { newId } from '@stowage/common/ids';
import type { DocumentBackendSchema } from '@stowage/proto/stowage/backend_registry/v1/backend';
import { context, startTestRegistry } from './test-registry.ts';
import type { TestRegistry } from './test-registry.ts';

let registry: TestRegistry;
let localId: string;
let farId: string;

const far = { endpoint: 'http://127.0.0.1:1', region: 'eu-central-1', bucket: 'far-away', prefix: 'a' };
const keys = { access_key_id: 'id', secret_access_key: 'key' };

beforeAll(async () => {
  registry = await startTestRegistry();
});
afterAll(() => registry.close());
beforeEach(async () => {
  await registry.reset();
  const replica = registry.replica();
  await replica.setUp();
  const made = { name: 'far', type: 's3', config: { ...far, ...keys } };
  farId = (await replica.backends.createBackend(made, context())).backend?.id ?? '';
  localId = (await registry.rows()).find((row) => row.is_default)?.id ?? '';
});

type Told = MessageInitShape<typeof DocumentBackendSchema>;

/** Each judgement in a line: known or not, what is missing, what speaks against it. */
async function judged(...backends: Told[]): Promise<string[]> {
  const { judgements } = await registry.replica().backends.judgeBackends({ backends }, context());
  expect(judgements.map(({ id }) => id)).toEqual(backends.map(({ id }) => id));
  return judgements.map(({ known, missingSecretFields, faults }) => {
    const codes = faults.map(({ code, pointer }) => `${code} ${pointer}`);
    return [known ? 'known' : 'unknown', ...missingSecretFields, ...codes].join(', ');
  });
}

const local = (root: string, more: Told = {}): Told => {
  return { id: newId(), type: 'local_directory', config: { root_path: root }, ...more };
};
const s3 = (config: JsonObject, more: Told = {}): Told => ({ id: farId, type: 's3', config, ...more });

test('what is here with the same place is known, and lacks no secret', async () => {
  const { root } = registry;
  expect(
    await judged(local(root, { id: localId, isDefault: true }), s3(far, { secretFields: Object.keys(keys) })),
  ).toEqual(['known', 'known']);
  expect(await judged(s3({ ...far, region: 'eu-west-1' }))).toEqual(['known']);
  expect(await judged(s3(far, { secretFields: ['session_token'] }))).toEqual(['known, session_token']);
});

test('secrets are for the place that they were given for, whatever the document says', async () => {
  const missing = 'unknown, access_key_id, secret_access_key';
  const elsewhere = [{ endpoint: 'http://127.0.0.2:1' }, { bucket: 'others' }, { prefix: 'b' }, { endpoint: null }];
  for (const other of elsewhere) expect(await judged(s3({ ...far, ...other }))).toEqual([missing]);
  expect(await judged(s3({ ...far, bucket: 'others' }, { id: newId() }))).toEqual([missing]);
  expect(await judged(s3(far, { id: newId() }))).toEqual([`${missing}, place_taken /config`]);
  const dav = { id: farId, type: 'webdav', config: { url: 'http://127.0.0.1:1/', username: 'ada' } };
  expect(await judged(dav)).toEqual(['unknown, password']);
});

test('folders that local backends may not lie in are told of, for the default one most of all', async () => {
  const free = path.join(registry.dataDir, 'backends', 'free');
  expect(await judged(local(free), local('/etc'), local('/etc', { isDefault: true }))).toEqual([
    'unknown',
    'unknown, outside_roots /config/root_path, place_overlaps /config',
    'unknown, default_elsewhere /config/root_path, place_overlaps /config',
  ]);
  expect(await judged(s3({ ...far, bucket: 'others' }, { isDefault: true }))).toEqual([
    'unknown, access_key_id, secret_access_key',
  ]);
});

test('places in one another are told of', async () => {
  const free = path.join(registry.dataDir, 'backends', 'free');
  expect(await judged(local(free), local(path.join(free, 'in')), local(`${free}-beside`))).toEqual([
    'unknown, place_overlaps /config',
    'unknown, place_overlaps /config',
    'unknown',
  ]);
  expect(await judged(local(path.join(registry.root, 'in')))).toEqual(['unknown, place_taken /config']);
});
