import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';

/** What a command printed, and how it ended. */
export interface Ended {
  code: number | null;
  out: string;
  errors: string;
}

/** Runs a command to its end, however it ends. */
export async function tryCommand(command: string, args: readonly string[], input = ''): Promise<Ended> {
  const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'pipe'] });
  const ended = Promise.withResolvers<number | null>();
  child.once('error', ended.reject);
  child.once('close', (code) => ended.resolve(code));
  // A command that ends before it read its input is no fault of ours.
  child.stdin.once('error', () => undefined);
  child.stdin.end(input);
  const [code, out, errors] = await Promise.all([ended.promise, text(child.stdout), text(child.stderr)]);
  return { code, out, errors };
}

/** What a command printed. Throws, with what it had to say, where it fails. */
export async function runCommand(command: string, args: readonly string[], input = ''): Promise<string> {
  const { code, out, errors } = await tryCommand(command, args, input);
  if (code === 0) return out;
  throw new Error(`${command} ${args.join(' ')} ended with ${code}:\n${errors}\n${out}`);
}

/** As runCommand, of kubectl. */
export function kubectl(args: readonly string[], input = ''): Promise<string> {
  return runCommand('kubectl', args, input);
}

/** Applies manifests, as JSON. */
export async function apply(...manifests: readonly object[]): Promise<void> {
  await kubectl(['apply', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items: manifests }));
}
