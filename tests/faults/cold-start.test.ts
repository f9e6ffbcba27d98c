import { afterAll, afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { serviceNames } from '@stowage/common/rpc/connections';
import { logIn, sha256, until } from '../support/client.ts';

import { FaultReport, timesOf } from '../support/fault-report.ts';
import { faultSizes } from '../support/fault-sizes.ts';
import { runCommand, ServicePods } from '../support/image-command.ts';
import type { RunningCommand } from '../support/image-command.ts';
import { lateDatabase } from '../support/late-database.ts';
import type { LateDatabase } from '../support/late-database.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { describeWith, natsServer } from '../support/real-servers.ts';
import { startServer } from '../support/share-servers.ts';
import type { OwnServer } from '../support/share-servers.ts';
import { adminPassword, uniqueName } from '../support/system.ts';
import { contentOf } from '../support/uploads.ts';

const readyLimitMs = 60_000;
/** Between two things that come. */
const longestPauseMs = 1_500;
const report = new FaultReport('R36 services, database and NATS come in random orders');
afterAll(() => report.print());

describeWith('NATS', natsServer(), () => {
  describe('R36 a cold start', () => {
    const random = new Random(chooseSeed());
    let folder: string;
    let nats: OwnServer;
    let database: LateDatabase;
    let pods: ServicePods;
    let migration: RunningCommand | null;

    beforeEach(async () => {
      process.stderr.write(`cold-start: STOWAGE_TEST_SEED=${random.seed}\n`);
      folder = await mkdtemp(join(tmpdir(), 'stowage-cold-'));
      nats = await startServer('NATS');
      await nats.kill();
      database = await lateDatabase();
      migration = null;
      pods = await ServicePods.plan({
        STOWAGE_DATABASE_URL: database.url,
        STOWAGE_NATS_URL: nats.url,
        STOWAGE_DATA_DIR: folder,
        STOWAGE_ADMIN_PASSWORD: adminPassword,
        STOWAGE_DATABASE_CONNECTIONS: '4',
      });
    });
    afterEach(async () => {
      migration?.signal('SIGKILL');
      for (const command of pods.running.values()) command.signal('SIGKILL');
      await Promise.all([...pods.running.values()].map(({ exited }) => exited));
      await database.close();
      await nats.close();
      await rm(folder, { recursive: true, force: true });
    });

    /** Whatever is away: a process that was started lives, and says so. */
    async function expectHonest(): Promise<void> {
      for (const [name, command] of pods.running) {
        if (!command.lives()) throw new Error(`${name} ended:\n${command.output()}`);
        const ready = await pods.readiness(name);
        if (ready && (await pods.health(name)) !== 200) throw new Error(`${name} is not healthy`);
        if (migration === null && ready?.status === 200) throw new Error(`${name} is ready without a schema`);
      }
    }

    const rounds = Array.from({ length: faultSizes.coldStarts }, (_, n) => n + 1);
    test.each(rounds)(
      'in random order %i is ready within a minute of the last, and nothing ends on the way',
      async (n) => {
        const things: [string, () => Promise<unknown>][] = [
          ['database', () => database.come()],
          ['nats', () => nats.restart()],
          ['migration', async () => (migration = runCommand(['migrate'], { STOWAGE_DATABASE_URL: database.url }))],
          ...serviceNames.map((name): [string, () => Promise<unknown>] => [name, async () => pods.start(name)]),
        ];
        const order = random.shuffled(things);
        for (const [, come] of order) {
          await come();
          await sleep(random.integer(0, longestPauseMs));
          await expectHonest();
        }
        // The database goes once more while they may be in the middle of their start.
        await database.go();
        await sleep(random.integer(0, longestPauseMs));
        await database.come();

        const begun = performance.now();
        for (const name of serviceNames) {
          await until(async () => {
            await expectHonest();
            return (await pods.readiness(name))?.status === 200;
          }, readyLimitMs).catch(async () => {
            const outputs = [pods.running.get(name)?.output(), migration?.output()];
            throw new Error(`${name}: ${JSON.stringify(await pods.readiness(name))}\n${outputs.join('\n')}`);
          });
        }
        const readyMs = performance.now() - begun;
        expect(await migration?.exited).toBe(0);

        const admin = await logIn(pods.url);
        // Uploads need the default policy, which placement makes once backend-registry is there.
        const file = await until(() => admin.putFile(uniqueName(), 'content').catch(() => null), readyLimitMs);
        expect(sha256(await contentOf(admin, String(file['id'])))).toBe(sha256('content'));
        await until(async () => (await admin.get('/api/system/ready')).json['status'] === 'ready', readyLimitMs);
        report.add(`order ${n}: ${order.map(([name]) => name).join(', ')}`, { ready: timesOf([readyMs]), restarts: 0 });
        expect(await pods.stop()).toEqual(Object.fromEntries(serviceNames.map((name) => [name, 0])));
      },
    );

    test('that is called off while it waits ends at once, with 0', async () => {
      for (const name of serviceNames) pods.start(name);
      for (const name of serviceNames) {
        const waits = async (): Promise<boolean> =>
          (await pods.readiness(name))?.detail?.includes('Waiting for the database') ?? false;
        await until(waits, readyLimitMs);
        expect(await pods.health(name)).toBe(200);
      }
      expect(await pods.stop()).toEqual(Object.fromEntries(serviceNames.map((name) => [name, 0])));
    });
  });
});
