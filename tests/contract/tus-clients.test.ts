import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { execFile, spawnSync } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { Upload } from 'tus-js-client';
import type { UploadOptions } from 'tus-js-client';
import { expectStatus, sha256 } from '../support/client.ts';
import type { Client } from '../support/client.ts';
import { admin, baseUrl } from '../support/contract.ts';
import { CuttingProxy, randomCuts } from '../support/cutting-proxy.ts';
import { chooseSeed, Random } from '../support/random.ts';
import { uniqueName } from '../support/system.ts';
import { contentOf, finalize } from '../support/uploads.ts';

const megabyte = 1024 * 1024;
const hasCurl = spawnSync('curl', ['--version']).status === 0;

let client: Client;
let directory: string;

beforeAll(async () => {
  client = await admin();
  directory = String((await client.makeDirectory(uniqueName('clients')))['id']);
});

describe('tus-js-client', () => {
  type Source = ConstructorParameters<typeof Upload>[0];

  /** Uploads to the end; gives the upload's id. */
  async function upload(source: Source, options: UploadOptions): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const running = new Upload(source, {
      endpoint: `${baseUrl()}/files`,
      headers: { authorization: `Bearer ${client.token ?? ''}` },
      retryDelays: [0, 50, 100, 200, 400, 800, 1600],
      onSuccess: () => resolve(),
      onError: reject,
      ...options,
    });
    running.start();
    await promise;
    return running.url?.split('/').at(-1) ?? '';
  }

  const metadata = (): { filename: string; directory_id: string } => ({
    filename: uniqueName('tus-js'),
    directory_id: directory,
  });

  async function expectFile(id: string, bytes: Buffer): Promise<void> {
    const file = expectStatus(await finalize(client, { id }), 201).json;
    expect(file).toMatchObject({ size: bytes.length, sha256: sha256(bytes), directory_id: directory });
    expect(sha256(await contentOf(client, file['id']))).toBe(sha256(bytes));
  }

  test.each([
    ['in one piece', {}],
    ['in chunks', { chunkSize: 700_000 }],
    ['with its first bytes in the POST', { uploadDataDuringCreation: true }],
    ['with its first bytes in the POST and chunks', { uploadDataDuringCreation: true, chunkSize: megabyte }],
    ['with PATCH in disguise', { overridePatchMethod: true, chunkSize: megabyte }],
  ])('uploads %s', async (_name, options) => {
    const bytes = new Random(7).bytes(3 * megabyte + 11);
    await expectFile(await upload(bytes, { metadata: metadata(), ...options }), bytes);
  });

  test('uploads a stream whose length is known only at its end', async () => {
    const bytes = new Random(8).bytes(2 * megabyte + 5);
    const pieces = Array.from({ length: 9 }, (_, index) => bytes.subarray(index * 250_000, (index + 1) * 250_000));
    const source = Readable.from(pieces, { objectMode: false });
    await expectFile(
      await upload(source, { metadata: metadata(), uploadLengthDeferred: true, chunkSize: 300_000 }),
      bytes,
    );
  });

  test('goes on after a pause', async () => {
    const bytes = new Random(9).bytes(4 * megabyte);
    const paused = Promise.withResolvers<string>();
    const first = new Upload(bytes, {
      endpoint: `${baseUrl()}/files`,
      headers: { authorization: `Bearer ${client.token ?? ''}` },
      metadata: metadata(),
      chunkSize: megabyte,
      onChunkComplete: (_size, accepted) => {
        if (accepted >= 2 * megabyte) void first.abort().then(() => paused.resolve(first.url ?? ''));
      },
      onError: paused.reject,
    });
    first.start();
    const uploadUrl = await paused.promise;
    const id = await upload(bytes, { uploadUrl, chunkSize: megabyte });
    await expectFile(id, bytes);
  });

  test('ends an upload that it gives up', async () => {
    const bytes = new Random(10).bytes(2 * megabyte);
    const ended = Promise.withResolvers<string>();
    const running = new Upload(bytes, {
      endpoint: `${baseUrl()}/files`,
      headers: { authorization: `Bearer ${client.token ?? ''}` },
      chunkSize: 500_000,
      onChunkComplete: () => void running.abort(true).then(() => ended.resolve(running.url ?? ''), ended.reject),
      onError: ended.reject,
    });
    running.start();
    await ended.promise;
  });

  test('brings 20 files whole through a connection that keeps breaking', async () => {
    const random = new Random(chooseSeed());
    const proxy = await CuttingProxy.start(baseUrl(), randomCuts(random, 0.9, 700_000));
    try {
      const files = Array.from({ length: 20 }, () => {
        const source = random.fork();
        return {
          bytes: source.bytes(source.integer(1, 1_500_000)),
          chunkSize: source.chance(0.5) ? source.integer(50_000, 600_000) : undefined,
        };
      });
      const queue = [...files];
      const worker = async (): Promise<void> => {
        for (let file = queue.pop(); file; file = queue.pop()) {
          const chunks = file.chunkSize === undefined ? {} : { chunkSize: file.chunkSize };
          const retryDelays = Array.from({ length: 60 }, () => 20);
          const id = await upload(file.bytes, {
            endpoint: `${proxy.url}/files`,
            metadata: metadata(),
            retryDelays,
            ...chunks,
          });
          await expectFile(id, file.bytes);
        }
      };
      await Promise.all(Array.from({ length: 4 }, worker));
      expect(proxy.cuts).toBeGreaterThan(5);
    } catch (error) {
      throw new Error(`seed ${random.seed}`, { cause: error });
    } finally {
      await proxy.close();
    }
  });
});

(hasCurl ? describe : describe.skip)('curl', () => {
  let folder: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'stowage-curl-'));
  });

  afterAll(() => rm(folder, { recursive: true, force: true }));

  async function curl(...args: string[]): Promise<string> {
    const { stdout } = await promisify(execFile)('curl', [
      '--silent',
      '--show-error',
      '--fail-with-body',
      '--max-time',
      '30',
      ...args,
    ]);
    return stdout;
  }

  test('logs in, uploads with --data-binary, finalizes and downloads, as in a tour', async () => {
    const bytes = new Random(11).bytes(3 * megabyte);
    const [source, copy] = [join(folder, 'source'), join(folder, 'copy')];
    await writeFile(source, bytes);
    const json = ['--header', 'Content-Type: application/json'];
    const password = (await import('../support/system.ts')).adminPassword;
    const login = JSON.parse(
      await curl(`${baseUrl()}/api/auth/login`, ...json, '--data', JSON.stringify({ username: 'admin', password })),
    );
    const token = ['--header', `Authorization: Bearer ${login.access_token}`];
    const name = Buffer.from(uniqueName('curl.bin')).toString('base64');
    const head = await curl(
      '--include',
      `${baseUrl()}/files`,
      ...token,
      ...['--header', 'Tus-Resumable: 1.0.0', '--header', `Upload-Length: ${bytes.length}`],
      ...['--header', `Upload-Metadata: filename ${name},directory_id ${Buffer.from(directory).toString('base64')}`],
      ...['--header', 'Content-Type: application/offset+octet-stream', '--data-binary', `@${source}`],
    );
    const location = /^location: (\S+)/im.exec(head)?.[1] ?? '';
    expect(location).toMatch(/^\/files\//);
    expect(head).toMatch(new RegExp(`^upload-offset: ${bytes.length}\\r?$`, 'im'));
    const id = location.split('/').at(-1) ?? '';
    const file = JSON.parse(await curl('--request', 'POST', `${baseUrl()}/api/uploads/${id}/finalize`, ...token));
    expect(file.sha256).toBe(sha256(bytes));
    await curl('--output', copy, `${baseUrl()}/api/files/${file.id}/download`, ...token);
    expect(sha256(await readFile(copy))).toBe(sha256(bytes));
    const part = await curl(
      '--range',
      '0-99',
      '--output',
      copy,
      `${baseUrl()}/api/files/${file.id}/download`,
      ...token,
    ).then(() => readFile(copy));
    expect(part.equals(bytes.subarray(0, 100))).toBe(true);
  });

  test('uploads a file from standard input with PATCH in pieces', async () => {
    const bytes = new Random(12).bytes(500_000);
    const [first, second] = [join(folder, 'first'), join(folder, 'second')];
    await writeFile(first, bytes.subarray(0, 300_000));
    await writeFile(second, bytes.subarray(300_000));
    const headers = ['--header', `Authorization: Bearer ${client.token ?? ''}`, '--header', 'Tus-Resumable: 1.0.0'];
    const head = await curl(
      '--include',
      '--request',
      'POST',
      `${baseUrl()}/files`,
      ...headers,
      '--header',
      `Upload-Length: ${bytes.length}`,
    );
    const location = /^location: (\S+)/im.exec(head)?.[1] ?? '';
    const typed = [...headers, '--header', 'Content-Type: application/offset+octet-stream'];
    await curl(
      '--request',
      'PATCH',
      `${baseUrl()}${location}`,
      ...typed,
      '--header',
      'Upload-Offset: 0',
      '--data-binary',
      `@${first}`,
    );
    await curl(
      '--upload-file',
      second,
      '--request',
      'PATCH',
      `${baseUrl()}${location}`,
      ...typed,
      '--header',
      'Upload-Offset: 300000',
    );
    const id = location.split('/').at(-1) ?? '';
    const file = expectStatus(
      await finalize(client, { id }, { filename: uniqueName('pieces'), directory_id: directory }),
      201,
    ).json;
    expect(file['sha256']).toBe(sha256(bytes));
  });
});
