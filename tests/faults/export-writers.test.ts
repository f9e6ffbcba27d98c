import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newBackend } from '../support/backends.ts';
import { logIn } from '../support/client.ts';
import type { Client, Json } from '../support/client.ts';
import { FaultReport } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { faultsOf, readDocument } from '../support/metadata-document.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { Mode, System } from '../support/system.ts';
import { RaceClient } from './support/race-client.ts';
import { changeTree } from './support/tree-client.ts';
import type { Known } from './support/tree-client.ts';

/** Fifty in all. */
const fileWriters = 36;
const treeWriters = 10;
const settingWriters = 4;
const classes = ['default', 'photo', 'document'];
const report = new FaultReport('exports beside 50 writers');
afterAll(() => report.print());

describe.each<Mode>(['standalone', 'services'])('while 50 writers work, %s', (mode) => {
  const random = new Random(chooseSeed());
  const violations: string[] = [];
  const writingMs = faultSizes.exportWritersMs / 2;
  let system: System;
  let admin: Client;

  beforeAll(async () => {
    process.stderr.write(`exports beside writers, ${mode}: STOWAGE_TEST_SEED=${random.seed}\n`);
    system = await startSystem(mode, {
      STOWAGE_LOG_LEVEL: 'fatal',
      STOWAGE_DATABASE_CONNECTIONS: '20',
      STOWAGE_GC_GRACE: '1s',
      STOWAGE_JOB_INTERVAL: '1s',
      STOWAGE_REQUESTS_PER_MINUTE: '1000000',
    });
    admin = await logIn(system.url);
  });

  afterAll(() => system?.close());

  /** Backends come and go, and policies name them. */
  async function changeSettings(mine: Random, isOver: () => boolean): Promise<void> {
    const fileClass = uniqueName('class');
    while (!isOver()) {
      const made = [await makeBackend(), await makeBackend()].flatMap((id) => id ?? []);
      const body = { backends: made, replicas: mine.integer(1, Math.max(1, made.length)) };
      await admin.call('PUT', `/api/policies/placement/${fileClass}`, { body });
      await admin.putFile(uniqueName(), mine.bytes(1_000), { fileClass });
      await admin.delete(`/api/policies/placement/${fileClass}`);
      for (const id of made) await forget(id);
    }
  }

  /** Null where another one is made at the same moment. */
  async function makeBackend(): Promise<string | null> {
    const { status, json } = await admin.post('/api/backends', await newBackend(admin));
    return status === 201 ? String(json['id']) : null;
  }

  async function forget(id: string): Promise<void> {
    await admin.post(`/api/backends/${id}/disable`);
    await admin.post(`/api/backends/${id}/forget-replicas`, { confirm: true });
    await admin.delete(`/api/backends/${id}`);
  }

  test('every export resolves all its references, has its digest, and is of one moment', async () => {
    const end = performance.now() + writingMs;
    const isOver = (): boolean => performance.now() > end || violations.length > 0;
    const violated = (what: string): void => void violations.push(what);
    const directories = await Promise.all([...'abcdefgh'].map((name) => admin.makeDirectory(name)));
    const moved = await Promise.all([...'ijkl'].map((name) => admin.putFile(name, name)));
    const ids = (nodes: Json[]): string[] => nodes.map(({ id }) => String(id));
    const known: Known = { directories: ids(directories), files: ids(moved), binned: [] };
    const writers = [
      ...Array.from({ length: fileWriters }, () =>
        new RaceClient({ client: admin, random: random.fork(), classes, violated }).run(isOver),
      ),
      ...Array.from({ length: treeWriters }, async () => {
        const mine = random.fork();
        while (!isOver()) await changeTree(admin, mine, known, [], 10);
      }),
      ...Array.from({ length: settingWriters }, () => changeSettings(random.fork(), isOver)),
    ];
    const writing = Promise.all(writers).catch((error: unknown) => violated(String(error)));
    const documents: Json[] = [];
    while (!isOver()) {
      const document = await readDocument(admin);
      documents.push(document['counts']);
      violations.push(...faultsOf(document));
    }
    await writing;
    violations.push(...faultsOf(await readDocument(admin)));
    report.add(mode, {
      seconds: writingMs / 1_000,
      exports: documents.length,
      last: JSON.stringify(documents.at(-1)),
    });
    expect({ seed: random.seed, violations }).toEqual({ seed: random.seed, violations: [] });
    expect(documents.length).toBeGreaterThan(3);
    expect(new Set(documents.map((counts) => JSON.stringify(counts))).size).toBeGreaterThan(3);
  });
});
