import { beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { expectStatus, logInAs, sha256 } from '@stowage/tests/support/client';
import type { Answer, Client, Json } from '@stowage/tests/support/client';
import { expectContentHeaders, parseDisposition, policyOf } from '@stowage/tests/support/content';
import { admin } from '@stowage/tests/support/contract';
import { expectProblem } from '@stowage/tests/support/problems';
import { activeSamples, html, mediaSamples, pdf, plainSample, svg } from '@stowage/tests/support/samples';
import type { Sample } from '@stowage/tests/support/samples';
import { uniqueName } from '@stowage/tests/support/system';

const mebibyte = 1024 * 1024;
const views = ['download', 'stream'] as const;
type View = (typeof views)[number];
let client: Client;
let home: string;

beforeAll(async () => {
  client = await admin();
  home = (await client.makeDirectory(uniqueName('content')))['id'];
});

function get(file: Json, view: View, headers: Record<string, string> = {}): Promise<Answer> {
  return client.get(`/api/files/${file['id']}/${view}`, headers);
}

function put({ name, bytes }: Pick<Sample, 'name' | 'bytes'>, type?: string): Promise<Json> {
  return client.putFile(`${uniqueName()}-${name}`, bytes, { directory: home, ...(type === undefined ? {} : { type }) });
}

describe('content comes back byte for byte', () => {
  const sizes = [0, 1, 1_000, mebibyte - 1, mebibyte, mebibyte + 1, 2 * mebibyte, 5 * mebibyte + 3];

  test.each(sizes)('of %d bytes', async (size) => {
    const bytes = randomBytes(size);
    const file = await put({ name: 'bytes', bytes });
    expect(file).toMatchObject({ size, sha256: sha256(bytes) });
    for (const view of views) {
      const answer = expectStatus(await get(file, view), 200);
      expect(sha256(answer.bytes)).toBe(sha256(bytes));
      expect(answer.headers.get('content-length')).toBe(String(size));
    }
  });

  test('to many at one moment', async () => {
    const bytes = randomBytes(mebibyte + 77);
    const file = await put({ name: 'many', bytes });
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, n) => get(file, n % 2 === 0 ? 'download' : 'stream')),
    );
    for (const answer of answers) expect(sha256(expectStatus(answer, 200).bytes)).toBe(sha256(bytes));
  });

  test('to a viewer', async () => {
    const viewer = await logInAs(client, 'viewer', uniqueName('viewer'));
    const file = await put(plainSample);
    for (const view of views) expectStatus(await viewer.get(`/api/files/${file['id']}/${view}`), 200);
  });
});

describe('the headers of a type', () => {
  async function expectView(sample: Sample, view: View, wanted: { inline: boolean; sandbox: boolean }): Promise<void> {
    const file = await put(sample);
    expect([sample.name, file['media_type']]).toEqual([sample.name, sample.mediaType]);
    const { headers, bytes } = expectStatus(await get(file, view), 200);
    expectContentHeaders(headers, { sha256: sha256(sample.bytes), mediaType: sample.mediaType });
    expect(parseDisposition(headers.get('content-disposition'))).toMatchObject({
      type: wanted.inline ? 'inline' : 'attachment',
      filename: file['name'],
    });
    expect([sample.name, policyOf(headers).includes('sandbox')]).toEqual([sample.name, wanted.sandbox]);
    expect(bytes).toEqual(sample.bytes);
  }

  test('pictures, audio, video and PDF are shown in place on stream, and are attachments on download', async () => {
    for (const sample of await mediaSamples()) {
      await expectView(sample, 'stream', { inline: true, sandbox: false });
      await expectView(sample, 'download', { inline: false, sandbox: false });
    }
  });

  test('plain text is shown in place on stream, sandboxed', async () => {
    await expectView(plainSample, 'stream', { inline: true, sandbox: true });
    await expectView(plainSample, 'download', { inline: false, sandbox: true });
  });

  test.each(activeSamples.map((sample) => [sample.mediaType, sample] as const))(
    '%s is an attachment on both, sandboxed (T22)',
    async (_type, sample) => {
      for (const view of views) await expectView(sample, view, { inline: false, sandbox: true });
    },
  );
});

describe('what content is decides, not what the client says of it (T22, T23, T24)', () => {
  const claims: readonly [type: string, name: string][] = [
    ['image/png', 'a.png'],
    ['image/png; charset=utf-8', 'plain'],
    ['IMAGE/JPEG', 'a.html'],
    ['image/gif', 'a.gif'],
    ['image/x-icon', 'favicon.ico'],
    ['application/pdf', 'a.pdf'],
    ['audio/mpeg', 'a.mp3'],
    ['video/mp4', 'a.svg'],
  ];
  const disguised: [string, string][] = [
    ['HTML', html],
    ['HTML behind white space', `${' \n\t'.repeat(600)}${html}`],
    ['HTML in a comment of a GIF', `GIF89a/*${html}*/=1;`],
    ['HTML behind the letters of a bitmap', `BM${html}`],
    ['SVG', svg],
    ['a script', 'alert(document.cookie)'],
    ['XML with a style sheet', '<?xml version="1.0"?><?xml-stylesheet href="javascript:alert(1)"?><a/>'],
  ];

  test.each(disguised)(
    '%s under any claim and name is no picture, and nothing that runs is shown in place',
    async (_what, content) => {
      for (const [type, name] of claims) {
        const file = await put({ name, bytes: Buffer.from(content) }, type);
        const { headers } = expectStatus(await get(file, 'stream'), 200);
        const served = headers.get('content-type') ?? '';
        expect([type, name, served]).toEqual([
          type,
          name,
          expect.not.stringMatching(/^(?!image\/svg\+xml)(image|audio|video)\/|pdf/),
        ]);
        expect(headers.get('x-content-type-options')).toBe('nosniff');
        expect(policyOf(headers)).toContain('sandbox');
        if (!served.startsWith('text/plain;'))
          expect(parseDisposition(headers.get('content-disposition')).type).toBe('attachment');
      }
    },
  );

  test('a picture under the claim of HTML is a picture', async () => {
    const [png] = await mediaSamples();
    const file = await put({ name: 'a.html', bytes: png?.bytes ?? Buffer.alloc(0) }, 'text/html');
    expect(file['media_type']).toBe('image/png');
    expect((await get(file, 'stream')).headers.get('content-type')).toBe('image/png');
  });

  test('a PDF under the claim of HTML is a PDF', async () => {
    const file = await put({ name: 'a.html', bytes: Buffer.from(pdf) }, 'text/html');
    expect((await get(file, 'stream')).headers.get('content-type')).toBe('application/pdf');
  });

  test.each([
    'text/html\r\nX-Evil: 1',
    'text/html; charset=utf-7',
    '',
    'nonsense',
    'a/b/c',
    '*/*',
    'text/plain;base64,',
    `text/${'x'.repeat(500)}`,
    '\u{1f600}/x',
  ])('the claim %j never reaches a header', async (type) => {
    const file = await put({ name: 'a.bin', bytes: Buffer.from('00ff00ff', 'hex') }, type);
    const { headers } = expectStatus(await get(file, 'stream'), 200);
    expect(headers.get('content-type')).toBe('application/octet-stream');
    expect(headers.has('x-evil')).toBe(false);
  });

  test('a new name does not change the type', async () => {
    const file = await put({ name: 'a.txt', bytes: Buffer.from(html) }, 'text/plain');
    expectStatus(await client.post(`/api/files/${file['id']}/rename`, { name: `${uniqueName()}.html` }), 200);
    const { headers } = expectStatus(await get(file, 'stream'), 200);
    expect(headers.get('content-type')).toBe(`${file['media_type']}; charset=utf-8`);
  });
});

describe('HEAD', () => {
  test.each(views)('of %s has the headers of GET and no bytes', async (view) => {
    for (const size of [0, 1, mebibyte + 5]) {
      const file = await put({ name: 'head', bytes: randomBytes(size) });
      const path = `/api/files/${file['id']}/${view}`;
      const [head, whole] = [
        expectStatus(await client.call('HEAD', path), 200),
        expectStatus(await client.get(path), 200),
      ];
      expect(head.bytes).toHaveLength(0);
      expect(headersOf(head)).toEqual(headersOf(whole));
      expect(head.headers.get('content-length')).toBe(String(size));
    }
  });

  test('of what is not there is 404 without a body', async () => {
    const answer = await client.call('HEAD', '/api/files/0193fa2c-7a3e-7cc1-9f0e-0d5f1a2b3c4d/download');
    expect([answer.status, answer.bytes.length]).toEqual([404, 0]);
  });
});

/** Without what belongs to the answer or the connection. */
function headersOf({ headers }: Answer): Record<string, string> {
  const passing = ['date', 'x-request-id', 'connection', 'keep-alive'];
  return Object.fromEntries([...headers].filter(([name]) => !passing.includes(name)));
}

describe('conditions', () => {
  let file: Json;
  let tag: string;
  let modified: string;
  const bytes = randomBytes(10_000);

  beforeAll(async () => {
    file = await put({ name: 'conditions.txt', bytes });
    const { headers } = expectStatus(await get(file, 'download'), 200);
    [tag, modified] = [headers.get('etag') ?? '', headers.get('last-modified') ?? ''];
  });

  const shifted = (seconds: number): string => new Date(Date.parse(modified) + seconds * 1000).toUTCString();

  test('the ETag is the content’s: the same for the same bytes, another for others, kept through rename and move', async () => {
    const [same, other] = [
      await put({ name: 'same', bytes }),
      await put({ name: 'other', bytes: randomBytes(10_000) }),
    ];
    for (const view of views) {
      expect((await get(file, view)).headers.get('etag')).toBe(tag);
      expect((await get(same, view)).headers.get('etag')).toBe(tag);
      expect((await get(other, view)).headers.get('etag')).not.toBe(tag);
    }
    const target = await client.makeDirectory(uniqueName(), home);
    expectStatus(
      await client.post(`/api/files/${same['id']}/move`, { directory_id: target['id'], name: 'new.html' }),
      200,
    );
    expect((await get(same, 'download')).headers.get('etag')).toBe(tag);
  });

  test.each(views)('on %s, If-None-Match that matches is 304 with no bytes', async (view) => {
    for (const value of [tag, `W/${tag}`, `"x", ${tag}`, `"x",W/${tag},"y"`, '*']) {
      const answer = expectStatus(await get(file, view, { 'if-none-match': value }), 304);
      expect(answer.bytes).toHaveLength(0);
      expect(answer.headers.get('etag')).toBe(tag);
      const head = await client.call('HEAD', `/api/files/${file['id']}/${view}`, {
        headers: { 'if-none-match': value },
      });
      expect(head.status).toBe(304);
    }
  });

  test.each(['"x"', '"x", "y"', 'x', '""', tagOf('other')])('If-None-Match: %s lets all through', async (value) => {
    expect(expectStatus(await get(file, 'download', { 'if-none-match': value }), 200).bytes).toEqual(bytes);
  });

  test('If-Modified-Since is 304 from that second on, 200 for one before', async () => {
    for (const since of [modified, shifted(1), shifted(86_400)]) {
      expectStatus(await get(file, 'download', { 'if-modified-since': since }), 304);
    }
    for (const since of [shifted(-1), shifted(-86_400), 'nonsense', '']) {
      expectStatus(await get(file, 'download', { 'if-modified-since': since }), 200);
    }
  });

  test('If-None-Match goes before If-Modified-Since', async () => {
    expectStatus(await get(file, 'download', { 'if-none-match': '"x"', 'if-modified-since': shifted(60) }), 200);
    expectStatus(await get(file, 'download', { 'if-none-match': tag, 'if-modified-since': shifted(-60) }), 304);
  });

  test('If-Match that does not match is 412', async () => {
    for (const value of [tag, '*', `"x", ${tag}`])
      expectStatus(await get(file, 'download', { 'if-match': value }), 200);
    for (const value of ['"x"', `W/${tag}`, '"x", "y"', `"${file['version']}"`]) {
      expectProblem(await get(file, 'download', { 'if-match': value }), 412, 'precondition_failed');
    }
  });

  test('If-Unmodified-Since before the last change is 412', async () => {
    expectProblem(await get(file, 'download', { 'if-unmodified-since': shifted(-1) }), 412, 'precondition_failed');
    for (const value of [modified, shifted(60), 'nonsense'])
      expectStatus(await get(file, 'download', { 'if-unmodified-since': value }), 200);
    expectStatus(await get(file, 'download', { 'if-match': tag, 'if-unmodified-since': shifted(-60) }), 200);
  });

  test.each(views)('on %s, If-Range holds for this content only', async (view) => {
    const range = 'bytes=5-14';
    for (const value of [tag, modified]) {
      const answer = expectStatus(await get(file, view, { range, 'if-range': value }), 206);
      expect(answer.bytes).toEqual(bytes.subarray(5, 15));
    }
    for (const value of ['"x"', `W/${tag}`, shifted(-1), shifted(1), 'nonsense', tag.slice(1, -1)]) {
      const answer = expectStatus(await get(file, view, { range, 'if-range': value }), 200);
      expect(answer.bytes).toEqual(bytes);
      expect(answer.headers.has('content-range')).toBe(false);
    }
    expectStatus(await get(file, view, { range: 'bytes=99999-', 'if-range': '"x"' }), 200);
  });

  test('a 304 goes before a range', async () => {
    expectStatus(await get(file, 'download', { range: 'bytes=0-1', 'if-none-match': tag }), 304);
  });
});

function tagOf(content: string): string {
  return `"${sha256(content)}"`;
}
