import { afterAll, beforeAll, expect, test } from '@jest/globals';
import pg from 'pg';
import { defaultBackend, makeBackend } from '../support/backends.ts';
import { expectStatus, logIn, sha256, until } from '../support/client.ts';
import type { Client, Json } from '../support/client.ts';
import { receive } from '../support/content.ts';
import { FaultReport } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { expectProblem } from '../support/problems.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { rawLocal, rawS3, rawWebdav } from '../support/raw-stores.ts';
import type { RawStore } from '../support/raw-stores.ts';
import { describeWith, s3Server, webdavServer } from '../support/real-servers.ts';
import { makeS3Backend, makeWebdavBackend } from '../support/remote-backends.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { System } from '../support/system.ts';
import { metByReads, mutate, mutations, rangeOver } from './support/mutations.ts';

const atOnce = 6;
const mebibyte = 1024 * 1024;
const report = new FaultReport('R06 and R07 damage to replicas');
afterAll(() => report.print());

/** A backend whose copies are read first. */
interface Place {
  name: string;
  backend: Json;
  raw: RawStore;
}

interface Stored {
  place: Place;
  id: string;
  blobId: string;
  key: string;
  bytes: Buffer;
}

describeWith('S3', s3Server(), (s3) =>
  describeWith('WebDAV', webdavServer(), (webdav) => {
    const random = new Random(chooseSeed());
    const places: Place[] = [];
    const stored: Stored[] = [];
    const done: Record<string, number> = {};
    let system: System;
    let admin: Client;
    let database: pg.Pool;
    let home: Json;
    let corruptSent = 0;

    beforeAll(async () => {
      process.stderr.write(`damage: STOWAGE_TEST_SEED=${random.seed}\n`);
      system = await startSystem('standalone', {
        STOWAGE_JOB_INTERVAL: '1s',
        STOWAGE_JOB_LEASE: '5s',
        STOWAGE_LOG_LEVEL: 'fatal',
      });
      admin = await logIn(system.url);
      database = new pg.Pool({ connectionString: system.databaseUrl, max: 2 });
      home = await defaultBackend(admin);
      const [local, bucket] = [await makeBackend(admin), await makeS3Backend(admin, s3)];
      const folder = await makeWebdavBackend(admin, webdav);
      places.push({ name: 'local', backend: local, raw: rawLocal(local) });
      places.push({ name: 's3', backend: bucket, raw: rawS3(bucket, s3) });
      places.push({ name: 'webdav', backend: folder, raw: rawWebdav(folder, webdav) });
      for (const { name, backend } of places) await policy(name, [backend], 1);
      const sizes = Array.from({ length: faultSizes.damagedFiles }, (_, index) => sizeOf(index));
      await eachOf(
        places.flatMap((place) => sizes.map((size) => ({ place, size }))),
        async ({ place, size }) => void stored.push(await put(place, size)),
      );
      await settled();
      // The copy at home is the younger one, and is read second.
      for (const { name, backend } of places) await policy(name, [backend, home], 2);
      await settled();
    }, 180_000);

    afterAll(async () => {
      await database?.end();
      await system?.close();
    });

    /** More than is kept in memory; every third is longer than a chunk. */
    function sizeOf(index: number): number {
      return index % 3 === 0 ? random.integer(mebibyte + 2, mebibyte + mebibyte / 2) : random.integer(70_000, 300_000);
    }

    async function policy(fileClass: string, backends: Json[], replicas: number): Promise<void> {
      const body = { backends: backends.map(({ id }) => id), replicas };
      expectStatus(await admin.call('PUT', `/api/policies/placement/${fileClass}`, { body }), 200);
    }

    async function put(place: Place, size: number): Promise<Stored> {
      const bytes = random.bytes(size);
      const { id } = await admin.putFile(uniqueName(), bytes, { fileClass: place.name });
      const { rows } = await database.query<{ blob_id: string; key: string }>(
        'select n.blob_id, r.key from catalog.nodes n join catalog.replicas r on r.blob_id = n.blob_id where n.id = $1',
        [id],
      );
      return { place, id: String(id), blobId: rows[0]?.blob_id ?? '', key: rows[0]?.key ?? '', bytes };
    }

    /** Waits until all that is known of content is well, and nothing is on its way. */
    async function settled(): Promise<void> {
      await until(async () => {
        const { rows } = await database.query<{ count: string }>(`
          select (select count(*) from jobs.jobs where state in ('pending', 'running') and run_after < now() + interval '5 s'
              and kind in ('place_blob', 'verify_blob', 'full_reconcile'))
            + (select count(*) from catalog.replicas where state <> 'available') as count`);
        return Number(rows[0]?.count) === 0;
      }, 120_000);
    }

    function count(what: string): void {
      done[what] = (done[what] ?? 0) + 1;
    }

    /** Damages a replica; gives where a read meets that. */
    async function damage(file: Stored, kinds: typeof mutations): Promise<number> {
      const kind = kinds[random.integer(0, kinds.length - 1)] ?? 'bit flip';
      const { bytes, at } = mutate(kind, file.bytes, random);
      await file.place.raw.write(file.key, bytes);
      count(`${kind} on ${file.place.name}`);
      return at;
    }

    async function swap(one: Stored, other: Stored): Promise<void> {
      await one.place.raw.write(one.key, other.bytes);
      await other.place.raw.write(other.key, one.bytes);
      for (const { place } of [one, other]) count(`swap on ${place.name}`);
    }

    /** What a client gets, which is right or not there at all. */
    async function read(file: Stored, at: number): Promise<void> {
      const range = rangeOver(at, file.bytes.length, random);
      const headers: Record<string, string> = range ? { range: `bytes=${range.first}-${range.last}` } : {};
      const answer = await receive(admin, `/api/files/${file.id}/download`, headers);
      const wanted = range ? file.bytes.subarray(range.first, range.last + 1) : file.bytes;
      if (!answer.bytes.equals(wanted.subarray(0, answer.bytes.length))) corruptSent += 1;
      expect({ whole: answer.whole, length: answer.bytes.length }).toEqual({ whole: true, length: wanted.length });
    }

    /** The blobs whose replica on their first backend was found bad since then. */
    async function foundBad(since: Date): Promise<Set<string>> {
      const { rows } = await database.query<{ blob_id: string }>(
        `select params->>'blob_id' as blob_id from jobs.jobs where kind = 'verify_blob' and state = 'succeeded'
           and created_at >= $1 and result->>'verdict' in ('corrupt', 'missing')`,
        [since],
      );
      return new Set(rows.map((row) => row.blob_id));
    }

    async function expectHealed(): Promise<void> {
      await settled();
      const local = rawLocal(home);
      await eachOf(stored, async ({ place, key, bytes }) => {
        for (const raw of [place.raw, local]) expect(sha256(await raw.read(key))).toBe(sha256(bytes));
      });
    }

    async function now(): Promise<Date> {
      const { rows } = await database.query<{ now: Date }>('select now()');
      return rows[0]?.now ?? new Date();
    }

    test('R06: a read never gets a wrong byte, finds the damage that it meets, and has it mended', async () => {
      for (let round = 0; round < faultSizes.damageRounds; round += 1) {
        const since = await now();
        const files = [...stored];
        const met: { file: Stored; at: number }[] = [];
        for (const place of places) {
          const [one, other] = files.filter((file) => file.place === place);
          if (!one || !other) throw new Error('too few files');
          await swap(one, other);
          met.push({ file: one, at: 0 }, { file: other, at: 0 });
        }
        const swapped = new Set(met.map(({ file }) => file));
        await eachOf(
          files.filter((file) => !swapped.has(file)),
          async (file) => void met.push({ file, at: await damage(file, metByReads) }),
        );
        await eachOf(met, ({ file, at }) => read(file, at));
        await expectHealed();
        const found = await foundBad(since);
        expect(met.filter(({ file }) => !found.has(file.blobId)).map(({ file }) => file.id)).toEqual([]);
      }
      report.add('damage met by reads', { ...done, 'corrupt bytes sent': corruptSent });
      expect(corruptSent).toBe(0);
    }, 300_000);

    test('R07: a scrub finds all damage in one pass, also when it is killed in the middle', async () => {
      const met = Object.values(done).reduce((sum, number) => sum + number, 0);
      const replicas = async (): Promise<number> => {
        const { rows } = await database.query<{ count: string }>('select count(*) from catalog.replicas');
        return Number(rows[0]?.count);
      };
      const more = Math.ceil((faultSizes.scrubbedReplicas - (await replicas())) / 2);
      const [local] = places;
      if (!local) throw new Error('no place');
      const small: Stored[] = [];
      await eachOf(
        Array.from({ length: more }, () => random.integer(1, 20_000)),
        async (size) => void small.push(await put(local, size)),
      );
      stored.push(...small);
      await settled();
      const since = await now();
      // No pass begins before all damage is done.
      const damaged = [...stored].sort(() => random.next() - 0.5).slice(0, faultSizes.scrubMutations);
      await eachOf(damaged, async (file) => void (await damage(file, mutations)));
      const removed = stored.find((file) => !damaged.includes(file));
      await removed?.place.raw.remove(removed.key);
      count('deletion');
      if (removed) damaged.push(removed);
      await database.query(`update catalog.replicas set verified_at = now() - interval '31 days'`);
      const scrubbed = async (): Promise<number> => {
        const { rows } = await database.query<{ count: string }>(
          `select count(*) from jobs.jobs where kind = 'verify_blob' and state = 'succeeded' and created_at >= $1`,
          [since],
        );
        return Number(rows[0]?.count);
      };
      const all = await replicas();
      await until(async () => (await scrubbed()) > all / 3, 60_000);
      await system.kill();
      const before = await scrubbed();
      await system.restart();
      await until(async () => (await scrubbed()) >= all, 120_000);
      await expectHealed();
      const found = await foundBad(since);
      report.add('scrub', {
        replicas: all,
        damaged: damaged.length,
        found: found.size,
        'read before the kill': before,
        'read in all': await scrubbed(),
        mutations: Object.values(done).reduce((sum, number) => sum + number, 0),
        'of them met by reads': met,
      });
      expect(before).toBeLessThan(all);
      expect(damaged.filter(({ blobId }) => !found.has(blobId)).map(({ id }) => id)).toEqual([]);
      expect(found.size).toBe(damaged.length);
    }, 300_000);

    test('with no good copy left a download breaks, or is 503 before its first byte, and is whole when one is back', async () => {
      admin = await logIn(system.url);
      const local = rawLocal(home);
      for (const place of places) {
        const file = stored.find((one) => one.place === place && one.bytes.length > mebibyte);
        if (!file) throw new Error('no file');
        const path = `/api/files/${file.id}/download`;
        const broken = Buffer.from(file.bytes);
        broken.writeUInt8(broken.readUInt8(mebibyte + 1) ^ 1, mebibyte + 1);
        for (const raw of [place.raw, local]) await raw.write(file.key, broken);
        const cut = await receive(admin, path);
        expect({ status: cut.status, whole: cut.whole }).toEqual({ status: 200, whole: false });
        expect(cut.bytes.equals(file.bytes.subarray(0, cut.bytes.length))).toBe(true);
        await until(async () => (await admin.get(path)).status === 503);
        expectProblem(await admin.get(path, { range: `bytes=${mebibyte}-` }), 503, 'unavailable');
        await place.raw.write(file.key, file.bytes);
        expectStatus(await admin.post('/api/jobs/enqueue-full-reconcile', {}), 202);
        await until(async () => sha256((await admin.get(path)).bytes) === sha256(file.bytes), 60_000);
      }
      expectStatus(await admin.post('/api/jobs/enqueue-full-reconcile', {}), 202);
      await expectHealed();
    }, 180_000);
  }),
);

async function eachOf<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const rest = items.values();
  const worker = async (): Promise<void> => {
    for (const item of rest) await work(item);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}
