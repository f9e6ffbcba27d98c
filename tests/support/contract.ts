import { logIn } from './client.ts';
import type { Client } from './client.ts';
import { urlVariable } from './shared-system.ts';
import type { Mode } from './system.ts';

declare global {
  // Set by jest.config.mjs for each of the two contract projects.
  var stowageMode: Mode | undefined;
}

/** The mode that this run of the contract tests is in. */
export function mode(): Mode {
  return globalThis.stowageMode ?? 'standalone';
}

/** Where the shared system of this mode answers. */
export function baseUrl(): string {
  const url = process.env[urlVariable(mode())];
  if (!url) throw new Error('the contract tests run through jest.config.mjs, which starts the system');
  return url;
}

/** An admin of the shared system. */
export function admin(): Promise<Client> {
  return logIn(baseUrl());
}
