import { beforeAll, expect, test } from '@jest/globals';
import { expectStatus } from '@stowage/tests/support/client';
import type { Client, Json } from '@stowage/tests/support/client';
import { parseDisposition } from '@stowage/tests/support/content';
import { admin, baseUrl } from '@stowage/tests/support/contract';
import { decomposedNames, goodNames } from '@stowage/tests/support/name-corpus';
import { exchange } from '@stowage/tests/support/odd-http';
import { uniqueName } from '@stowage/tests/support/system';
import { at, inBatches } from '@stowage/tests/support/tree';

let client: Client;
let files: Json[];

beforeAll(async () => {
  client = await admin();
  const home = (await client.makeDirectory(uniqueName('content-names')))['id'];
  const names = [...new Set([...goodNames, ...decomposedNames.map(([, kept]) => kept)])];
  files = await inBatches(names, (name) => client.putFile(name, 'x', { directory: home }), 8);
});

test.each(['download', 'stream'])('every name comes back from Content-Disposition on %s (T21)', async (view) => {
  const found = await inBatches(files, async (file) => {
    const { headers } = expectStatus(await client.get(`/api/files/${file['id']}/${view}`), 200);
    return parseDisposition(headers.get('content-disposition')).filename;
  });
  expect(found).toEqual(files.map((file) => file['name']));
});

test('the plain filename is ASCII that every client reads alike: no quote, backslash, slash or percent sign (T21)', async () => {
  const odd: string[] = [];
  for (const file of files) {
    const { headers } = expectStatus(await client.call('HEAD', `/api/files/${file['id']}/download`), 200);
    const { fallback } = parseDisposition(headers.get('content-disposition'));
    if (!/^[\x20\x21\x23\x24\x26-\x2e\x30-\x5b\x5d-\x7e]+$/.test(fallback)) odd.push(`${file['name']}: ${fallback}`);
  }
  expect(odd).toEqual([]);
});

test('the header is one line of ASCII on the wire (T21)', async () => {
  for (const name of ['"quoted" name.txt', 'back\\slash.txt', '中文檔案.txt', '\u{1f600}'.repeat(63)]) {
    const file = at(
      files.filter((one) => one['name'] === name),
      0,
    );
    const head = `HEAD /api/files/${file['id']}/download HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${client.token ?? ''}\r\nConnection: close\r\n\r\n`;
    const { text } = await exchange(baseUrl(), head);
    expect(text).toMatch(/^HTTP\/1\.1 200 OK\r\n(?:[!-9;-~]+: [\x20-\x7e]*\r\n)+\r\n$/);
    expect(text.match(/content-disposition/gi)).toHaveLength(1);
  }
});
