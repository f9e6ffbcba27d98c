import { execFile, spawnSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const repository = join(import.meta.dirname, '../..');

export const hasCurl = spawnSync('curl', ['--version']).status === 0;

/** The shell lines of a page that follow a comment of this name, as `<!-- tour -->`. */
export async function linesOf(page: string, name: string): Promise<string> {
  const text = await readFile(join(repository, page), 'utf8');
  const lines = new RegExp(`<!-- ${name}\\b[^>]*-->\\s*\`\`\`sh\\n([^]*?)\`\`\``).exec(text)?.[1];
  if (lines === undefined) throw new Error(`${page} has no part ${name}`);
  return lines;
}

/** Runs lines as a person would, the first that fails being the last; gives what they print. */
export async function runLines(lines: string, env: Record<string, string>, cwd = repository): Promise<string> {
  const variables = { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env };
  return (await promisify(execFile)('sh', ['-eu', '-c', lines], { env: variables, cwd })).stdout;
}
