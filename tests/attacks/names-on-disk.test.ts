import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { logIn, uploadMetadata } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { parseDisposition } from '@stowage/tests/support/content';
import { mode } from '@stowage/tests/support/contract';
import { badNames, decomposedNames, goodNames } from '@stowage/tests/support/name-corpus';
import { sendOdd } from '@stowage/tests/support/odd-http';
import { expectNothingInternal } from '@stowage/tests/support/problems';
import { accessOfRoutes, unknownId } from '@stowage/tests/support/routes';
import { noStrace } from '@stowage/tests/support/strace';
import { watchChanges } from '@stowage/tests/support/watch-changes';
import { startSystem, uniqueName } from '@stowage/tests/support/system';
import type { System } from '@stowage/tests/support/system';
import { inBatches } from '@stowage/tests/support/tree';
import { completeUpload, createUpload, finalize } from '@stowage/tests/support/uploads';

/** Stands in whatever would be made in a wrong place. */
const mark = `escaped-${randomBytes(6).toString('hex')}`;
let system: System;
let client: Client;
let home: string;
let changed: string[] | null = null;
/** Files that got a name in one way or another: what the name is to be, and where the file is. */
const named: { name: string; id: string }[] = [];
const answers: Answer[] = [];

function ways(): string[] {
  return [
    `../${mark}`,
    `../../../../../../tmp/${mark}`,
    `/tmp/${mark}`,
    `${system.dataDir}/${mark}`,
    `..\\..\\${mark}`,
    `C:\\${mark}`,
    `file:///tmp/${mark}`,
    `%2e%2e%2f${mark}`,
    `..%2f..%2ftmp%2f${mark}`,
    `..%5c${mark}`,
    `%252e%252e%252f${mark}`,
    `%c0%ae%c0%ae%c0%af${mark}`,
    `${mark}%00.txt`,
    `${mark}\u0000`,
    `${mark}\r\nX-Evil: ${mark}`,
    `${unknownId}/../../${mark}`,
    `${unknownId}\u0000/${mark}`,
    `....//....//${mark}`,
    `\u2025/${mark}`,
    `\uff0e\uff0e\uff0f${mark}`,
    `\u001b[31m${mark}`,
    `|touch ${mark}`,
    `$(touch /tmp/${mark})`,
    `;touch /tmp/${mark};`,
  ];
}

beforeAll(async () => {
  system = await startSystem(mode(), { STOWAGE_LOG_LEVEL: 'trace' });
  client = await logIn(system.url);
  home = (await client.makeDirectory('home'))['id'];
  const watch = noStrace === null ? await watchChanges(await system.pidOf('backend-registry')) : null;
  await giveNames([...goodNames, ...decomposedNames.map(([given]) => given)]);
  await giveNames([...ways(), ...badNames.filter((name) => name.length < 2_000)]);
  await putEverywhere(ways());
  changed = (await watch?.stop()) ?? null;
}, 120_000);

afterAll(() => system.close());

function note(answer: Answer): Answer {
  answers.push(answer);
  return answer;
}

async function fresh(): Promise<string> {
  return (await client.makeDirectory(uniqueName(), home))['id'];
}

function keep({ status, json }: Answer): void {
  if (status < 300 && json['kind'] === 'file') named.push({ name: json['name'], id: json['id'] });
}

/** Through each way in which a file or directory gets its name. */
async function giveNames(names: readonly string[]): Promise<void> {
  const [made, created, renamed] = [await fresh(), await fresh(), await fresh()];
  await inBatches(names, async (name) => {
    note(await client.post('/api/directories', { parent_id: made, name }));
    const upload =
      name.isWellFormed() &&
      (await createUpload(client, {
        length: 1,
        metadata: { filename: name, directory_id: created },
        body: Buffer.from('x'),
      }));
    if (upload && note(upload).status === 201)
      keep(note(await finalize(client, { id: upload.headers.get('location')?.slice(7) ?? '' })));
    const plain = { filename: uniqueName(), directory_id: renamed };
    keep(note(await finalize(client, await completeUpload(client, Buffer.from('x'), plain), { filename: name })));
    const file = await client.putFile(uniqueName(), 'x', { directory: renamed });
    const path = `/api/files/${file['id']}`;
    keep(note(await client.post(`${path}/rename`, { name, on_conflict: 'rename' })));
    note(await client.delete(path));
    keep(note(await client.post(`${path}/restore`, { name, on_conflict: 'rename' })));
    keep(note(await client.post(`${path}/move`, { directory_id: created, name, on_conflict: 'rename' })));
  });
}

/** In every path, query, header and field that could be taken for a place. */
async function putEverywhere(texts: readonly string[]): Promise<void> {
  await inBatches(texts, async (text) => {
    for (const key of ['directory_id', 'file_class', 'filetype', 'sha256', 'on_conflict', 'relativePath', 'name']) {
      const metadata = uploadMetadata({ filename: uniqueName(), directory_id: home, [key]: text });
      note(await client.tus('POST', '/files', { 'upload-length': '1', 'upload-metadata': metadata }, Buffer.from('x')));
    }
    const upload = await completeUpload(client, Buffer.from('x'), { filename: uniqueName(), directory_id: home });
    for (const key of ['directory_id', 'file_class', 'sha256']) note(await finalize(client, upload, { [key]: text }));
    note(await client.post('/api/directories', { parent_id: text, name: uniqueName() }));
    const fields: Json = { name: text, directory_id: text, parent_id: text, filename: text };
    for (const route of Object.keys(accessOfRoutes).filter((one) => one.includes('{'))) {
      const [method = '', template = ''] = route.split(' ');
      for (const id of [encodeURIComponent(text.toWellFormed()), text.replaceAll(/[^!-~]/g, '')]) {
        const path = template.replace(/\{\w+\}/, id.replaceAll('#', ''));
        const headers: [string, string][] = [
          ['Authorization', `Bearer ${client.token}`],
          ['Tus-Resumable', '1.0.0'],
          ['Upload-Offset', '0'],
          ['X-Original-URL', `/${mark}`],
          ['User-Agent', `\u009b0;${mark}`],
          [
            'Content-Type',
            method === 'PATCH' && path.startsWith('/files') ? 'application/offset+octet-stream' : 'application/json',
          ],
        ];
        const body = /^(POST|PUT|PATCH)$/.test(method) ? JSON.stringify(fields) : '';
        note(await sendOdd(system.url, { method, path, headers, body }));
      }
    }
  });
}

describe('Names and places that are made to escape', () => {
  test('were handled, all of them, and no answer tells of a path', () => {
    expect(answers.length).toBeGreaterThan(2_500);
    const broken = answers.filter(({ status }) => status >= 500).map(({ bytes }) => bytes.toString());
    expect(broken).toEqual([]);
    for (const { status, bytes, json, headers } of answers) {
      expect(headers.has('x-evil')).toBe(false);
      // What a client gets back of its own text is no leak of ours.
      if (status >= 400 && !JSON.stringify(json).includes(mark)) expectNothingInternal(bytes.toString());
    }
  });

  test('come back from Content-Disposition as they were kept, however the file got them (T21)', async () => {
    expect(named.length).toBeGreaterThan(4 * goodNames.length);
    const latest = new Map(named.map(({ id, name }) => [id, name]));
    const read = await inBatches([...latest.keys()], async (id) => {
      const view = await client.call('HEAD', `/api/files/${id}/download`);
      return parseDisposition(view.headers.get('content-disposition')).filename;
    });
    expect(read).toEqual([...latest.values()]);
  });

  test('leave nothing in the data folder but what bears an id of ours (T11)', async () => {
    const entries = await readdir(system.dataDir, { recursive: true });
    const id = '[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}';
    const ours = new RegExp(
      `^secret\\.key$|^backends(/local(/\\.stowage-backend\\.json|/staging(/${id}(\\.[a-z]+)?)?|/blobs(/[0-9a-f]{2}(/${id})?)?)?)?$`,
    );
    expect(entries.length).toBeGreaterThan(100);
    expect(entries.filter((entry) => !ours.test(entry))).toEqual([]);
    const around = [...(await readdir(tmpdir())), ...(await readdir(process.cwd())), ...(await readdir('/'))];
    expect(around.filter((entry) => entry.includes(mark))).toEqual([]);
  });

  (noStrace === null ? test : test.skip)(
    'made no system call that changes anything outside the data folder (T11, T12)',
    () => {
      expect(changed?.length).toBeGreaterThan(100);
      const outside = changed?.filter(
        (path) => !path.startsWith(`${system.dataDir}/`) || /\.\.|%|\\/.test(path) || path.includes(mark),
      );
      expect(outside).toEqual([]);
    },
  );

  test('are each one whole line of JSON in the log, with nothing that moves a terminal (T63)', () => {
    const lines = system
      .output()
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('Stowage is ready'));
    expect(lines.length).toBeGreaterThan(answers.length);
    const odd = lines.filter((line) => {
      const whole = line.startsWith('{') && line.endsWith('}') && typeof JSON.parse(line) === 'object';
      return !whole || /[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]/u.test(line);
    });
    expect(odd.slice(0, 5)).toEqual([]);
  });
});
