import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { defaultBackend, makeBackend } from '../support/backends.ts';
import { expectStatus, logIn, sha256, until } from '../support/client.ts';
import type { Client, Json } from '../support/client.ts';
import { FaultReport } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import {
  exportCompressed,
  exported,
  finished,
  importPlan,
  integrity,
  loseDatabase,
  planRestore,
  reconcile,
  setMode,
  validate,
} from '../support/metadata.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { describeWith, natsServer, s3Server, webdavServer } from '../support/real-servers.ts';
import { makeS3Backend, makeWebdavBackend } from '../support/remote-backends.ts';
import { startServer } from '../support/share-servers.ts';
import type { OwnServer } from '../support/share-servers.ts';
import { s3Objects } from '../support/stored-objects.ts';
import { storedBlobs, storedObjects } from '../support/stored-blobs.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { Mode, System } from '../support/system.ts';
import { inBatches, readFile } from '../support/tree.ts';

const report = new FaultReport('R16 everything back from an export and what is left of the backends');
afterAll(() => report.print());

const [s3, webdav] = [s3Server(), webdavServer()];

/** Six processes have their messages and connections to lose, which few files show. */
const filesOfServices = 20;

/** What was put in: where it lies in the tree, and what it must hash to. */
interface Kept {
  id: string;
  path: string;
  sha256: string;
  fileClass: string;
}

describeWith('S3 and WebDAV', s3 && webdav ? { s3, webdav } : null, (servers) => {
  const random = new Random(chooseSeed());
  let system: System;
  let admin: Client;

  beforeAll(() => void process.stderr.write(`drill: STOWAGE_TEST_SEED=${random.seed}\n`));
  afterEach(() => system.close());

  async function begin(mode: Mode = 'standalone', environment: Record<string, string> = {}): Promise<void> {
    system = await startSystem(mode, { STOWAGE_LOG_LEVEL: 'fatal', STOWAGE_GC_GRACE: '0ms', ...environment });
    admin = await logIn(system.url);
  }

  const secretsOf: Record<string, Json> = {
    s3: { access_key_id: servers.s3.accessKey, secret_access_key: servers.s3.secretKey },
    webdav: { password: servers.webdav.password },
    local_directory: {},
  };

  async function want(fileClass: string, backends: Json[], replicas = backends.length): Promise<void> {
    const body = { backends: backends.map(({ id }) => id), replicas };
    const { json } = expectStatus(await admin.call('PUT', `/api/policies/placement/${fileClass}`, { body }), 200);
    await finished(admin, json['job'].id);
  }

  /** Files of all sizes in directories of three levels. */
  async function putFiles(count: number, classes: readonly string[]): Promise<Kept[]> {
    const directories: string[] = ['root'];
    for (let made = 0; made < 12; made += 1) {
      const parent = directories[random.integer(0, Math.min(made, 3))] ?? 'root';
      directories.push((await admin.makeDirectory(uniqueName('directory'), parent))['id']);
    }
    return inBatches(
      Array.from({ length: count }).map((_, index) => index),
      async (index) => {
        const bytes = random.bytes(sizeOf(index));
        const fileClass = classes[index % classes.length] ?? 'default';
        const directory = directories[random.integer(0, directories.length - 1)] ?? 'root';
        const { id, path } = await admin.putFile(uniqueName(`fïle ${index}`), bytes, { fileClass, directory });
        return { id, path, sha256: sha256(bytes), fileClass };
      },
      8,
    );
  }

  function sizeOf(index: number): number {
    if (index % 10 === 0) return 0;
    if (index % 50 === 1) return random.integer(1_048_575, 3_500_000);
    return random.integer(1, 60_000);
  }

  /** Waits until nothing is to be copied, and every file has so many good copies. */
  async function untilPlaced(files: readonly Kept[], copies = 2): Promise<void> {
    await until(async () => {
      const { json } = expectStatus(await admin.get('/api/policies/placement/preview'), 200);
      return json['classes'].every((one: Json) => one['to_copy'] === 0) && (await goodCopies(files)) >= copies;
    }, 180_000);
  }

  /** The least number of good copies that any of the files has. */
  async function goodCopies(files: readonly Kept[]): Promise<number> {
    const counts = await inBatches(files, async ({ id }) => {
      const { placement } = await readFile(admin, id);
      return placement.replicas.filter((one: Json) => one['state'] === 'available').length;
    });
    return Math.min(...counts);
  }

  /** Every file is where it was, and every byte of it. */
  async function expectWhole(files: readonly Kept[]): Promise<void> {
    const found = await inBatches(files, async ({ id }) => {
      const { status, bytes } = await admin.get(`/api/files/${id}/download`);
      if (status !== 200) return { id, status };
      return { id, path: (await readFile(admin, id))['path'], sha256: sha256(bytes) };
    });
    expect(found).toEqual(files.map(({ id, path, sha256: digest }) => ({ id, path, sha256: digest })));
  }

  async function expectPoliciesHold(files: readonly Kept[]): Promise<void> {
    const { json } = expectStatus(await admin.get('/api/policies/placement/preview'), 200);
    const sum = (name: string): number => json['classes'].reduce((all: number, one: Json) => all + one[name], 0);
    expect({
      satisfied: sum('satisfied'),
      wanting: sum('to_copy') + sum('unsatisfiable') + sum('lost'),
    }).toEqual({ satisfied: files.length, wanting: 0 });
  }

  /** Takes a document in; gives the plan of that, and the id of the export of what was there before. */
  async function restore(document: Buffer): Promise<{ plan: Json; previous: string }> {
    expect(await validate(admin, document)).toMatchObject({ valid: true, errors: [] });
    await setMode(admin, 'read_only');
    const plan = await planRestore(admin, document);
    const answer = expectStatus(await importPlan(admin, plan), 200).json;
    expect(answer).toMatchObject({ job: { kind: 'full_reconcile' }, previous_export_id: expect.any(String) });
    await setMode(admin, 'normal');
    return { plan, previous: answer['previous_export_id'] };
  }

  /** Gives a backend its secrets again, and lets it in. */
  async function letIn({ id, type }: Json): Promise<void> {
    const config = secretsOf[type];
    if (config && Object.keys(config).length > 0) {
      expectStatus(await admin.call('PATCH', `/api/backends/${id}`, { body: { config } }), 200);
    }
    expectStatus(await admin.post(`/api/backends/${id}/enable`), 200);
    const { json } = expectStatus(await admin.post(`/api/backends/${id}/check`), 200);
    expect(json).toMatchObject({ state: 'enabled', health: { status: 'healthy' } });
  }

  const sections = ['directories', 'files', 'blobs', 'policies'] as const;
  const tree = (document: Json): Json => Object.fromEntries(sections.map((name) => [name, document[name]]));

  test('the database is gone: the export, the backends and their secrets bring all of it back', async () => {
    await begin();
    await loseAndRestore(faultSizes.drillFiles);
  }, 600_000);

  describeWith('NATS', natsServer(), () => {
    let nats: OwnServer;
    beforeAll(async () => {
      nats = await startServer('NATS');
    }, 60_000);
    afterAll(() => nats?.close());

    test('so they do for six processes, while NATS still holds the events of the database that is gone', async () => {
      await begin('services', { STOWAGE_NATS_URL: nats.url });
      await loseAndRestore(filesOfServices);
    }, 600_000);
  });

  async function loseAndRestore(count: number): Promise<void> {
    const began = performance.now();
    const local = await defaultBackend(admin);
    const backends = [await makeS3Backend(admin, servers.s3), await makeWebdavBackend(admin, servers.webdav)];
    const [bucket = {}, folder = {}] = backends;
    await want('default', [local, bucket]);
    await want('image', [bucket, folder]);
    await want('document', [folder, local]);
    const files = await putFiles(count, ['default', 'image', 'document']);
    await untilPlaced(files);
    const before = await exported(admin);
    const document = await exportCompressed(admin);
    const uploaded = performance.now();

    await loseDatabase(system);
    await system.restart();
    admin = await logIn(system.url);
    expect(await integrity(admin)).toMatchObject({ ok: true, counts: { files: 0 } });
    expectStatus(await admin.get(`/api/files/${files[0]?.id}/download`), 404);

    const { plan } = await restore(document);
    const missing = new Map(
      plan['backends'].map((one: Json) => [one['id'], [one['action'], one['missing_secret_fields']]]),
    );
    expect(missing.get(bucket['id'])).toEqual(['create', ['access_key_id', 'secret_access_key']]);
    expect(missing.get(folder['id'])).toEqual(['create', ['password']]);
    for (const backend of backends) await letIn(backend);
    const { compared } = await reconcile(admin);
    expect(compared.map((one: Json) => [one['compared'], one['missing'], one['unknown']])).toEqual(
      [local, ...backends].map(() => [true, 0, 0]),
    );
    await untilPlaced(files);
    await expectWhole(files);
    await expectPoliciesHold(files);
    expect(await integrity(admin)).toMatchObject({ ok: true, problems: [] });
    expect(tree(await exported(admin))).toEqual(tree(before));
    report.add(`database lost, ${system.mode}`, {
      files: files.length,
      'upload s': Math.round((uploaded - began) / 1000),
      'drill s': Math.round((performance.now() - uploaded) / 1000),
    });
  }

  test('a backend is gone with the database: what has a second copy is whole, and gets another one', async () => {
    await begin();
    const local = await defaultBackend(admin);
    const [bucket, folder] = [await makeS3Backend(admin, servers.s3), await makeWebdavBackend(admin, servers.webdav)];
    await want('default', [local, bucket]);
    await want('image', [bucket, folder]);
    const files = await putFiles(40, ['default', 'image']);
    await untilPlaced(files);
    const document = await exportCompressed(admin);

    await loseDatabase(system);
    const inBucket = s3Objects(servers.s3, bucket);
    for (const key of await storedObjects(bucket, servers)) await inBucket.remove(key);
    await system.restart();
    admin = await logIn(system.url);
    await restore(document);
    await letIn(folder);
    await expectWhole(files);
    // Nothing of it will be seen again: no policy names it any more, and what was said to lie there is forgotten.
    for (const fileClass of ['default', 'image']) await want(fileClass, [local, folder]);
    await untilPlaced(files, 2);
    expectStatus(await admin.post(`/api/backends/${bucket['id']}/forget-replicas`, { confirm: true }), 200);
    expectStatus(await admin.delete(`/api/backends/${bucket['id']}`), 204);
    await reconcile(admin);
    await expectWhole(files);
    await expectPoliciesHold(files);
    expect(await integrity(admin)).toMatchObject({ ok: true, problems: [] });
    report.add('database and one backend lost', { files: files.length });
  }, 600_000);

  test('all content has moved since the export: it is found where it lies now', async () => {
    await begin();
    const [old, other] = [await makeBackend(admin), await makeBackend(admin)];
    await want('default', [old]);
    const files = await putFiles(40, ['default']);
    await untilPlaced(files, 1);
    const document = await exportCompressed(admin);
    await want('default', [other]);
    await until(async () => (await storedBlobs(old, servers)).length === 0, 120_000);
    const moved = await storedBlobs(other, servers);

    await restore(document);
    const { compared } = await reconcile(admin);
    const found = new Map(compared.map((one: Json) => [one['backend_id'], one]));
    expect(found.get(other['id'])).toMatchObject({ compared: true, unknown: 0 });
    await untilPlaced(files, 1);
    await expectWhole(files);
    await expectPoliciesHold(files);
    expect(await integrity(admin)).toMatchObject({ ok: true, problems: [] });
    expect(await storedBlobs(old, servers)).toEqual(moved);
    // Nothing is removed for a week after an import.
    expect(await storedBlobs(other, servers)).toEqual(moved);
    report.add('content moved since the export', { files: files.length });
  }, 600_000);

  test('files that are newer than the export are told of as unknown objects, and stay where they lie', async () => {
    await begin();
    const local = await defaultBackend(admin);
    const files = await putFiles(20, ['default']);
    const document = await exportCompressed(admin);
    const newer = await putFiles(5, ['default']);
    const before = await storedBlobs(local, servers);
    expect(before).toHaveLength(files.length + newer.length);

    await loseDatabase(system);
    await system.restart();
    admin = await logIn(system.url);
    await restore(document);
    for (let run = 0; run < 3; run += 1) await reconcile(admin);
    const { ok, problems, problem_count: count } = await integrity(admin);
    expect({ ok, count, kinds: [...new Set(problems.map((one: Json) => one['kind']))] }).toEqual({
      ok: false,
      count: newer.length,
      kinds: ['unknown_object'],
    });
    const known = new Set((await exported(admin))['blobs'].map((blob: Json) => blob['id']));
    for (const { id } of problems) expect(known.has(id)).toBe(false);
    expect(await storedBlobs(local, servers)).toEqual(before);
    for (const { id } of newer) expectStatus(await admin.get(`/api/files/${id}`), 404);
    await expectWhole(files);
    report.add('files newer than the export', { files: files.length, newer: newer.length, removed: 0 });
  }, 600_000);

  test('the wrong document was imported: the state before is an export, and is imported in its turn', async () => {
    await begin();
    const files = await putFiles(20, ['default']);
    const wrong = await exportCompressed(admin);
    const later = await putFiles(5, ['default']);
    const before = tree(await exported(admin));
    const { previous } = await restore(wrong);
    for (const { id } of later) expectStatus(await admin.get(`/api/files/${id}`), 404);
    await restore(await exportCompressed(admin, previous));
    await expectWhole([...files, ...later]);
    expect(tree(await exported(admin))).toEqual(before);
    await reconcile(admin);
    expect(await integrity(admin)).toMatchObject({ ok: true, problems: [] });
    report.add('wrong document imported', { files: files.length, later: later.length });
  }, 600_000);
});
