import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { launchEnvironment } from './launch-environment.ts';
import { adminPassword } from './system.ts';

const repository = join(import.meta.dirname, '../..');

/** How the command `apply` ended, and what it printed. */
export interface Applied {
  code: number | null;
  lines: string[];
}

/** Runs the command `apply` on what a file declares: a text as it is, anything else as JSON. */
export async function runApply(
  url: string,
  declared: unknown,
  environment: Record<string, string> = {},
): Promise<Applied> {
  const folder = await mkdtemp(join(tmpdir(), 'stowage-declared-'));
  const file = join(folder, 'declared.yaml');
  await writeFile(file, typeof declared === 'string' ? declared : JSON.stringify(declared));
  const child = spawn(process.execPath, [join(repository, 'launcher/src/apply.ts')], {
    cwd: repository,
    env: {
      ...launchEnvironment(),
      STOWAGE_DECLARED_FILE: file,
      STOWAGE_API_URL: url,
      STOWAGE_ADMIN_PASSWORD: adminPassword,
      ...environment,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let printed = '';
  child.stdout.on('data', (piece) => (printed += piece));
  child.stderr.on('data', (piece) => (printed += piece));
  await once(child, 'close');
  await rm(folder, { recursive: true });
  return { code: child.exitCode, lines: printed.split('\n').filter((line) => line !== '') };
}
