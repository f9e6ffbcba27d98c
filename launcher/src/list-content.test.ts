import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expectStatus, logIn, sha256, until } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { describeWith, s3Server, webdavServer } from '@stowage/tests/support/real-servers';
import { makeS3Backend, makeWebdavBackend } from '@stowage/tests/support/remote-backends';
import { startSystem } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';
import { readFile } from '@stowage/tests/support/tree';

const contents = ['', 'x', 'hello, stowage', 'long '.repeat(700_000)].map((one) => Buffer.from(one));

interface Told {
  code: number;
  lines: string[];
  said: string;
}

/** What the tool tells of a place; it gets no database, nor anything else. */
async function list(place: string): Promise<Told> {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'list-content.ts')], {
    env: { PATH: process.env['PATH'] },
  });
  child.stdin.end(place);
  const [out, said, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  return { code, lines: out.split('\n').filter((line) => line !== ''), said };
}

describe('what lies on backends when all metadata are lost', () => {
  let system: System;
  let admin: Client;
  let files: Json[];

  beforeAll(async () => {
    system = await startSystem('standalone');
    admin = await logIn(system.url);
    files = [];
    for (const [index, content] of contents.entries()) files.push(await admin.putFile(`file ${index}`, content));
  });
  afterAll(() => system.close());

  async function backendOf(id: string): Promise<Json> {
    return expectStatus(await admin.get(`/api/backends/${id}`), 200).json;
  }

  /** Waits for a second copy of all on this backend, and gives the lines that are to be told of it. */
  async function copyTo(backend: Json): Promise<string[]> {
    const { items } = expectStatus(await admin.get('/api/policies/placement'), 200).json;
    const body = { backends: [items[0].backends[0], backend['id']], replicas: 2 };
    expectStatus(await admin.call('PUT', '/api/policies/placement/default', { body }), 200);
    return until(async () => {
      const now = await Promise.all(files.map((file) => readFile(admin, file['id'])));
      const copies = now.map(({ placement }) =>
        placement.replicas.find((one: Json) => one['backend_id'] === backend['id'] && one['state'] === 'available'),
      );
      return copies.every(Boolean) && expected();
    }, 60_000);
  }

  async function expected(): Promise<string[]> {
    const { items } = expectStatus(await admin.get('/api/backends'), 200).json;
    const [home] = items.filter((backend: Json) => backend['is_default']);
    const found = await readdir(join(home.config.root_path, 'blobs'), { recursive: true });
    expect(found.filter((name) => name.includes('/'))).toHaveLength(contents.length);
    return contents.map((content) => `${content.length} ${sha256(content)}`).sort();
  }

  const withoutId = (line: string): string => line.slice(line.indexOf(' ') + 1);

  test('a folder tells of each blob its id, size and SHA-256', async () => {
    const { items } = expectStatus(await admin.get('/api/backends'), 200).json;
    const [home] = items.filter((backend: Json) => backend['is_default']);
    const { code, lines, said } = await list(
      JSON.stringify({ type: 'local_directory', config: { root_path: home.config.root_path } }),
    );
    expect({ code, said }).toEqual({ code: 0, said: `This is backend ${home.id}.\n` });
    expect(lines.map(withoutId).sort()).toEqual(await expected());
    for (const line of lines) expect(line).toMatch(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12} \d+ [0-9a-f]{64}$/);
  });

  test('what is no place, or none that it can ask, is said', async () => {
    expect(await list('{}')).toMatchObject({ code: 1, lines: [], said: expect.stringContaining('which backend') });
    expect(await list('{"type":"tape","config":{}}')).toMatchObject({
      code: 1,
      said: expect.stringContaining('/type'),
    });
    const nowhere = { type: 'local_directory', config: { root_path: join(system.dataDir, 'nowhere') } };
    expect(await list(JSON.stringify(nowhere))).toMatchObject({ code: 1, lines: [] });
    const empty = await mkdtemp(join(tmpdir(), 'stowage-empty-'));
    const place = { type: 'local_directory', config: { root_path: empty } };
    expect(await list(JSON.stringify(place))).toMatchObject({
      lines: [],
      said: expect.stringContaining('no identity'),
    });
    expect(await readdir(empty)).toEqual([]);
    await rm(empty, { recursive: true });
  });

  describeWith('S3', s3Server(), (server) => {
    test('a bucket tells the same, and no secret', async () => {
      const backend = await makeS3Backend(admin, server);
      const expectedLines = await copyTo(backend);
      const { config } = await backendOf(backend['id']);
      const secrets = { access_key_id: server.accessKey, secret_access_key: server.secretKey };
      const told = await list(JSON.stringify({ type: 's3', config: { ...config, ...secrets } }));
      expect({ ...told, lines: told.lines.map(withoutId).sort() }).toEqual({
        code: 0,
        lines: expectedLines,
        said: `This is backend ${backend['id']}.\n`,
      });
    });
  });

  describeWith('WebDAV', webdavServer(), (server) => {
    test('a folder of a WebDAV server tells the same', async () => {
      const backend = await makeWebdavBackend(admin, server);
      const expectedLines = await copyTo(backend);
      const { config } = await backendOf(backend['id']);
      const told = await list(JSON.stringify({ type: 'webdav', config: { ...config, password: server.password } }));
      expect({ ...told, lines: told.lines.map(withoutId).sort() }).toEqual({
        code: 0,
        lines: expectedLines,
        said: `This is backend ${backend['id']}.\n`,
      });
    });
  });
});
