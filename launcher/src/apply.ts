import { settingsOrExit } from '@stowage/common/runtime/settings-or-exit';
import { readFile } from 'node:fs/promises';
import { ApiClient, ApiRefusal, ApiUnreachable } from './declared/api-client.ts';
import { applyDeclared } from './declared/apply-declared.ts';
import { applySettings } from './declared/apply-settings.ts';
import { DeclaredFileError, parseDeclared } from './declared/declared-file.ts';

const { apply } = settingsOrExit({ apply: applySettings }, process.env);

const print = (line: string): void => void process.stdout.write(`${line}\n`);

/** Gives how many items were refused. */
async function run(): Promise<number> {
  const declared = parseDeclared(await readFile(apply.declaredFile, 'utf8'));
  const api = new ApiClient(apply.apiUrl, apply.limitMs);
  await api.untilReady();
  await api.logIn(apply.adminUsername, apply.adminPassword);
  try {
    const { unchanged, changed, refused } = await applyDeclared(api, declared, print);
    print(`${changed} changed, ${unchanged} as declared already, ${refused} refused`);
    return refused;
  } finally {
    await api.logOut();
  }
}

try {
  process.exitCode = (await run()) > 0 ? 1 : 0;
} catch (error) {
  const known = error instanceof DeclaredFileError || error instanceof ApiRefusal || error instanceof ApiUnreachable;
  if (!known && !(error instanceof Error && 'code' in error)) throw error;
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
