import { flushCompileCache } from 'node:module';
import type { Lifecycle } from './lifecycle.ts';
import type { Logger } from './logger.ts';
import { SettingsError } from './settings.ts';

/** A mistake of whoever starts the process, told in one plain sentence instead of a stack. */
export class StartupError extends Error {
  override readonly name: string = 'StartupError';
}

/** One that may be mended while the process runs: a service in a process of its own tells of it, unready, and tries again. */
export class MendableError extends StartupError {
  override readonly name = 'MendableError';
}

/**
 * Runs `start`, then waits for SIGINT or SIGTERM and shuts down in order. A second signal, or a shutdown that takes
 * longer than `limitMs`, ends the process at once. A start that fails prints why and exits with 1.
 */
export async function runProcess(
  lifecycle: Lifecycle,
  logger: Logger,
  limits: { drainDelayMs: number; limitMs: number },
  start: () => Promise<void>,
): Promise<void> {
  let stopping = false;
  const stop = (exitCode: number): void => {
    if (stopping) process.exit(exitCode || 1);
    stopping = true;
    process.exitCode = exitCode;
    setTimeout(() => process.exit(exitCode || 1), limits.drainDelayMs + limits.limitMs).unref();
    void lifecycle.shutDown(limits.drainDelayMs);
  };
  process.on('SIGINT', () => stop(0));
  process.on('SIGTERM', () => stop(0));
  // A launcher that dies without a word takes its children with it.
  process.channel?.unref();
  process.on('disconnect', () => stop(0));
  // Whoever read the output may be gone, as in `npm start | head`. Logging that as fatal would wait for them for ever.
  process.stdout.on('error', () => undefined);
  process.on('uncaughtException', (error) => {
    logger.fatal({ err: error }, 'An error that nobody handled; the process ends.');
    stop(1);
  });
  try {
    await start();
    if (!stopping) lifecycle.markReady();
    // Where there is a cache: a process that is killed writes none.
    flushCompileCache();
  } catch (error) {
    if (stopping) return;
    explain(error, logger);
    stop(1);
  }
}

function explain(error: unknown, logger: Logger): void {
  if (error instanceof SettingsError || error instanceof StartupError) process.stderr.write(`${error.message}\n`);
  else logger.fatal({ err: error }, 'The start failed.');
}
