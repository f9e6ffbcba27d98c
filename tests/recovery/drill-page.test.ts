import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { chmod, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { defaultBackend, makeBackend } from '../support/backends.ts';
import { expectStatus, logIn, sha256, until } from '../support/client.ts';
import type { Client, Json } from '../support/client.ts';
import { JobTable } from '../support/job-table.ts';
import { finished, integrity, loseDatabase } from '../support/metadata.ts';
import { hasCurl, linesOf, runLines } from '../support/page-lines.ts';
import { describeWith, s3Server } from '../support/real-servers.ts';
import { makeS3Backend } from '../support/remote-backends.ts';
import { adminPassword, startSystem } from '../support/system.ts';
import type { System } from '../support/system.ts';

const page = 'deploy/drill.md';
const contents = ['', 'x', 'hello, stowage\n', 'long '.repeat(300_000)];

describeWith('S3', s3Server(), (server) => {
  let system: System;
  /** Where the operator works. */
  let desk: string;
  let admin: Client;

  beforeAll(async () => {
    system = await startSystem('standalone');
    desk = await mkdtemp(join(tmpdir(), 'stowage-desk-'));
    await symlink(system.dataDir, join(desk, 'data'));
    admin = await logIn(system.url);
  });
  afterAll(async () => {
    await system.close();
    await rm(desk, { recursive: true, force: true });
  });

  /** Runs a part of the page as it stands. */
  async function run(part: string, more: Record<string, string> = {}): Promise<string> {
    const lines = `${await linesOf(page, 'prelude')}\n${await linesOf(page, part)}`;
    return runLines(lines, { URL: system.url, PASSWORD: adminPassword, ...more }, desk);
  }

  /** npm would first see to the dependencies, which are those of the tests here. */
  async function npmThatInstallsNothing(): Promise<string> {
    const bin = join(desk, 'bin');
    await mkdir(bin);
    const script = join(import.meta.dirname, '../../launcher/src/list-content.ts');
    await writeFile(
      join(bin, 'npm'),
      `#!/bin/sh\n[ "$*" = 'run -s list-content' ] && exec ${process.execPath} ${script}\n`,
    );
    await chmod(join(bin, 'npm'), 0o755);
    return bin;
  }

  async function written(name: string): Promise<Json> {
    return JSON.parse(await readFile(join(desk, name), 'utf8'));
  }

  async function put(backends: Json[]): Promise<void> {
    const body = { backends: backends.map(({ id }) => id), replicas: backends.length };
    const { json } = expectStatus(await admin.call('PUT', '/api/policies/placement/default', { body }), 200);
    await finished(admin, json['job'].id);
  }

  async function expectWhole(files: readonly Json[]): Promise<void> {
    for (const [index, file] of files.entries()) {
      const { bytes } = expectStatus(await admin.get(`/api/files/${file['id']}/download`), 200);
      expect(sha256(bytes)).toBe(sha256(contents[index % contents.length] ?? ''));
    }
  }

  async function putFiles(prefix: string): Promise<Json[]> {
    const files: Json[] = [];
    for (const [index, content] of contents.entries()) files.push(await admin.putFile(`${prefix} ${index}`, content));
    return files;
  }

  (hasCurl ? test : test.skip)(
    'the drill works as its page says',
    async () => {
      const [home, bucket] = [await defaultBackend(admin), await makeS3Backend(admin, server)];
      await put([home, bucket]);
      const files = await putFiles('file');
      await until(async () => {
        const { json } = expectStatus(await admin.get('/api/policies/placement/preview'), 200);
        return json['classes'].every((one: Json) => one['to_copy'] === 0);
      });
      await run('export');

      await loseDatabase(system);
      await system.restart();
      admin = await logIn(system.url);
      expect(await run('restore')).toContain('"missing_secret_fields":["access_key_id","secret_access_key"]');
      expect(await written('imported.json')).toMatchObject({ imported: { files: files.length } });
      const backend = { S3: bucket['id'], S3_KEY: server.accessKey, S3_SECRET: server.secretKey };
      expect(await run('secrets', backend)).not.toContain(server.secretKey);
      await run('check');
      expect((await written('reconciled.json'))['result'].compared).toHaveLength(2);
      await until(async () => (await admin.get('/api/policies/placement/preview')).json['classes'][0].to_copy === 0);
      expect((await written('preview.json'))['classes'][0]).toMatchObject({ lost: 0, unsatisfiable: 0 });
      await expectWhole(files);

      const later = await putFiles('later');
      await run('restore');
      for (const { id } of later) expectStatus(await admin.get(`/api/files/${id}`), 404);
      await run('undo');
      await expectWhole([...files, ...later]);

      const spare = await makeBackend(admin);
      const places = { LOST: bucket['id'], FIRST: home['id'], SECOND: spare['id'] };
      await run('backend', places);
      expectStatus(await admin.get(`/api/backends/${bucket['id']}`), 404);
      await expectWhole([...files, ...later]);
      expect(await integrity(admin)).toMatchObject({ ok: true });
    },
    300_000,
  );

  (hasCurl ? test : test.skip)(
    'exports on schedule and content lie where the page says',
    async () => {
      const jobs = await JobTable.open(system.databaseUrl);
      await finished(admin, await jobs.insert('metadata_export', {}));
      await jobs.close();
      expect(await run('scheduled')).toMatch(/^\d{8}T\d{6}Z-[0-9a-f-]{36}\.json\.gz\n$/);

      const home = await defaultBackend(admin);
      await putFiles('listed');
      const bin = await npmThatInstallsNothing();
      const where = { ROOT: home['config'].root_path, PATH: `${bin}:${process.env['PATH']}` };
      const [line = ''] = (await run('list', where)).split('\n');
      expect(line).toMatch(/^[0-9a-f-]{36} \d+ [0-9a-f]{64}$/);
    },
    120_000,
  );
});
