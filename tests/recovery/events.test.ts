import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { fileEventSchema, fileVerbs, jobEventSchema } from '@stowage/common/events/schemas';
import { Value } from 'typebox/value';
import pg from 'pg';
import { Client, expectStatus, logIn, until } from '../support/client.ts';
import type { Json } from '../support/client.ts';
import { EventReader } from '../support/event-reader.ts';
import type { ReadEvent } from '../support/event-reader.ts';
import { JobTable } from '../support/job-table.ts';
import { describeWith, natsServer } from '../support/real-servers.ts';
import { startServer } from '../support/share-servers.ts';
import type { OwnServer } from '../support/share-servers.ts';
import { freePort } from '../support/free-ports.ts';
import { startSystem, uniqueName } from '../support/system.ts';
import type { Mode, System } from '../support/system.ts';
import { inBatches } from '../support/tree.ts';

const modes: Mode[] = ['standalone', 'services'];

describeWith('NATS', natsServer(), () => {
  describe.each(modes)('the events of %s', (mode) => {
    let nats: OwnServer;
    let system: System;
    let client: Client;
    let database: pg.Pool;
    let jobs: JobTable;
    let managementPort: number;

    beforeAll(async () => {
      nats = await startServer('NATS');
      // A start needs no NATS.
      await nats.kill();
      managementPort = await freePort();
      system = await startSystem(mode, {
        STOWAGE_NATS_URL: nats.url,
        STOWAGE_LOG_LEVEL: 'info',
        STOWAGE_MANAGEMENT_PORT: String(managementPort),
      });
      expect(await ready()).toEqual({ status: 200, whole: 'degraded', bus: 'degraded' });
      await nats.restart();
      client = await logIn(system.url);
      database = new pg.Pool({ connectionString: system.databaseUrl, max: 2 });
      jobs = await JobTable.open(system.databaseUrl);
    });

    afterAll(async () => {
      await jobs?.close();
      await database?.end();
      await system?.close();
      await nats?.close();
    });

    async function read(name: string): Promise<ReadEvent[]> {
      const reader = await EventReader.open(nats.url, name);
      const events = await reader.read();
      await reader.close();
      return events;
    }

    async function ready(): Promise<{ status: number; whole: unknown; bus: unknown }> {
      const { status, json } = await new Client(system.url).get('/api/system/ready');
      const checks: Json[] = json['checks'];
      return { status, whole: json['status'], bus: checks.find(({ name }) => name === 'event_bus')?.['status'] };
    }

    async function untilAllPublished(): Promise<void> {
      await until(async () => {
        const { rowCount } = await database.query('select from jobs.outbox where published_at is null limit 1');
        return rowCount === 0;
      }, 60_000);
    }

    test('every change of a file, a directory and a job is told, in the form that its schema says', async () => {
      const [parent, child] = [await client.makeDirectory(uniqueName()), await client.makeDirectory(uniqueName())];
      const file = await client.putFile(uniqueName(), 'content');
      for (const path of [`/api/files/${file['id']}`, `/api/directories/${child['id']}`]) {
        const target = path.startsWith('/api/files') ? 'directory_id' : 'parent_id';
        expectStatus(await client.post(`${path}/rename`, { name: uniqueName('ünï') }), 200);
        expectStatus(await client.post(`${path}/move`, { [target]: parent['id'] }), 200);
        expectStatus(await client.delete(path), 200);
        expectStatus(await client.post(`${path}/restore`), 200);
        expectStatus(await client.delete(path), 200);
        expectStatus(await client.delete(`${path}?permanent=true`), 204);
      }
      const job = await jobs.insert('verify_blob', { blob_id: 'none' });
      await until(async () => (await jobs.read(job)).state === 'failed');
      await untilAllPublished();

      const events = await read('first');
      for (const { event, subject, messageId, contentType } of events) {
        const schema = subject.startsWith('stowage.jobs.') ? jobEventSchema : fileEventSchema;
        expect([subject, [...Value.Errors(schema, event)]]).toEqual([subject, []]);
        expect([event.type, event.id, event.data['id']]).toEqual([subject, messageId, event.subject]);
        expect(contentType).toBe('application/cloudevents+json');
      }
      const verbsOf = (id: string): string[] =>
        events.filter(({ event }) => event.subject === id).map(({ subject }) => subject);
      const verbs = [...fileVerbs.slice(0, -1), 'recycled', 'purged'].map((verb) => `stowage.files.${verb}`);
      for (const id of [file['id'], child['id']]) expect(verbsOf(id)).toEqual(verbs);
      expect(verbsOf(job)).toEqual(['stowage.jobs.verify_blob.running', 'stowage.jobs.verify_blob.failed']);
      expect(events.find(({ event }) => event.subject === file['id'])?.event.data).toEqual({
        id: file['id'],
        kind: 'file',
        parent_id: expect.any(String),
        name: file['name'],
        actor: expect.any(String),
        request_id: expect.any(String),
      });
    });

    test('while NATS is away no request fails; 1,000 changes of files and of jobs come once each, in order', async () => {
      await nats.kill();
      const directories = await inBatches(Array.from({ length: 100 }), () => client.makeDirectory(uniqueName()));
      const changes = Array.from({ length: 900 }, (_, n) => directories[n % 100]?.['id']);
      const renamed = inBatches(changes, async (id) =>
        expectStatus(await client.post(`/api/directories/${id}/rename`, { name: uniqueName() }), 200),
      );
      for (let n = 0; n < 500; n += 1) await jobs.insert('purge_recycle_bin', {});
      await renamed;
      expectStatus(await client.get('/api/system/ready'), 200);
      await nats.restart();
      if (mode === 'services') process.kill(await system.pidOf('placement'), 'SIGKILL');
      await until(async () => {
        const { rowCount } = await database.query(`select from jobs.jobs where state in ('pending', 'running')
          and run_after <= now() limit 1`);
        return rowCount === 0;
      }, 60_000);
      await untilAllPublished();

      const events = await read('second');
      const { rows } = await database.query<{ id: string; subject: string; resource: string }>(
        `select id, subject, data ->> 'id' as resource from jobs.outbox order by position`,
      );
      expect(rows.filter(({ subject }) => subject.startsWith('stowage.files.')).length).toBeGreaterThanOrEqual(1_000);
      expect(rows.filter(({ subject }) => subject.startsWith('stowage.jobs.')).length).toBeGreaterThanOrEqual(1_000);
      expect(events).toHaveLength(rows.length);
      const written = Map.groupBy(rows, ({ resource }) => resource);
      const heard = Map.groupBy(events, ({ event }) => event.subject);
      for (const [resource, group] of written)
        expect(heard.get(resource)?.map(({ messageId }) => messageId)).toEqual(group.map(({ id }) => id));
      // Who calls the process that was killed finds it again at a pace of its own.
      await until(() => client.putFile(uniqueName(), 'content').catch(() => null), 10_000);
    });

    test('1,000 old events that are sent again, and forged ones, have no effect: rows alone are believed', async () => {
      const file = await client.putFile(uniqueName(), 'content');
      const failed = await jobs.insert('verify_blob', { blob_id: 'none' });
      for (let n = 0; n < 20; n += 1) await jobs.insert('purge_recycle_bin', {});
      const untilIdle = (): Promise<unknown> =>
        until(async () => {
          const { rowCount } = await database.query(
            `select from jobs.jobs where state in ('pending', 'running') and run_after <= now() limit 1`,
          );
          return rowCount === 0;
        }, 60_000);
      await until(async () => (await jobs.read(failed)).state === 'failed');
      await untilIdle();
      await untilAllPublished();
      // What the schedules make meanwhile is none of this.
      const stand = async (): Promise<unknown> => {
        const { rows: all } = await database.query(
          `select id, kind, state, attempt, fence from jobs.jobs where kind in ('purge_recycle_bin', 'verify_blob', 'remove_blob') order by id`,
        );
        const { rows: nodes } = await database.query('select node::text from catalog.nodes node order by id');
        return { all, nodes };
      };
      const before = await stand();

      const reader = await EventReader.open(nats.url, uniqueName('forger'));
      const forged: number[] = [];
      const publish = async (subject: string, event: object): Promise<void> => {
        const message = JSON.stringify(event);
        const { seq } = await reader.manager.jetstream().publish(subject, message, { msgID: uniqueName() });
        forged.push(seq);
      };
      const old = await reader.read();
      while (forged.length < 1_000) {
        const again = old[forged.length % old.length];
        if (again) await publish(again.subject, again.event);
      }
      const forge = (subject: string, id: string, data: object): Promise<void> => {
        const about = { id: uniqueName(), source: '/stowage/jobs', type: subject, subject: id, specversion: '1.0' };
        return publish(subject, { ...about, time: new Date().toISOString(), data: { id, ...data } });
      };
      const params = await jobs.verification(String(file['id']));
      await forge('stowage.jobs.verify_blob.pending', failed, { kind: 'verify_blob', state: 'pending' });
      await forge('stowage.jobs.remove_blob.pending', uniqueName(), { kind: 'remove_blob', state: 'pending', params });
      await forge('stowage.files.purged', String(file['id']), { kind: 'file' });

      // Whatever was to come of them would have come before this.
      const job = await jobs.insert('health_check', { backend_id: 'none' });
      await until(async () => (await jobs.read(job)).state !== 'pending');
      await untilIdle();
      await untilAllPublished();
      expect(await stand()).toEqual(before);
      expect((await client.get(`/api/files/${file['id']}/download`)).bytes.toString()).toBe('content');
      for (const sequence of forged) await reader.manager.streams.deleteMessage('STOWAGE', sequence);
      await reader.close();
    });

    test('without NATS, and while it hangs, readiness is degraded, with 200, and only that of the whole', async () => {
      const [works, degraded] = ['ready', 'degraded'].map((word) => ({ status: 200, whole: word, bus: word }));
      const becomes = (wanted: unknown): Promise<unknown> =>
        until(async () => JSON.stringify(await ready()) === JSON.stringify(wanted), 30_000);
      await becomes(works);
      await nats.kill();
      await becomes(degraded);
      if (mode === 'standalone') {
        const probe = await fetch(`http://127.0.0.1:${managementPort}/api/system/ready`);
        expect(await probe.json()).toMatchObject({ status: 'ready', checks: [{ name: 'process' }] });
      }
      await nats.restart();
      await becomes(works);
      nats.process.kill('SIGSTOP');
      await becomes(degraded);
      nats.process.kill('SIGCONT');
      await becomes(works);
    });

    test('the password in its address is in no log', () => {
      expect(system.output()).toContain('wait in the outbox');
      expect(system.output()).not.toContain(new URL(nats.url).password);
    });
  });
});
