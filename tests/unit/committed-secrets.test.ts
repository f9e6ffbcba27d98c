import { expect, test } from '@jest/globals';
import { spawnSync } from 'node:child_process';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../..');

/** As `npm run lint` runs it, on one file. */
function scan(file: string) {
  const configuration = ['--secretlintrc', join(root, '.secretlintrc.json')];
  return spawnSync(join(root, 'node_modules/.bin/secretlint'), ['--maskSecrets', ...configuration, file], {
    encoding: 'utf8',
  });
}

test('a credential in a file fails the lint and is not printed; without it the file passes (T72)', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'stowage-secrets-'));
  try {
    const file = join(folder, 'values.yaml');
    // Made here: written out, they would fail the lint of this file.
    const pem = generateKeyPairSync('rsa', {
      modulusLength: 2048,
      publicKeyEncoding: { type: 'spki', format: 'pem' },
      privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
    });
    const secrets = {
      aws: `AWS_SECRET_ACCESS_KEY=${randomBytes(30).toString('base64')}`,
      github: `ghp_${randomBytes(18).toString('hex')}`,
      database: `postgres://stowage:${randomBytes(12).toString('hex')}@db.example.com/stowage`,
      key: pem.privateKey,
    };
    for (const [kind, secret] of Object.entries(secrets)) {
      await writeFile(file, `# ${kind}\n${secret}\n`);
      const found = scan(file);
      expect({ kind, status: found.status }).toEqual({ kind, status: 1 });
      expect(`${found.stdout}${found.stderr}`).not.toContain(secret);
    }
    await writeFile(file, 'kind: none\nvalue: nothing\n');
    expect(scan(file).status).toBe(0);
  } finally {
    await rm(folder, { recursive: true });
  }
});
