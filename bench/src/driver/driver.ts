import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { Job, Load } from './jobs.ts';

type Message = { load: Load } | { error: string };

/** The load driver, in a process of its own. */
export class Driver {
  readonly #child: ChildProcess;

  constructor() {
    this.#child = fork(join(import.meta.dirname, 'main.ts'), { serialization: 'advanced' });
  }

  /** Runs one load. Throws where one of its requests was not answered as it should be. */
  async run(job: Job): Promise<Load> {
    const answer = Promise.withResolvers<Message>();
    const onExit = (code: number | null): void => answer.reject(new Error(`the driver ended with ${code}`));
    this.#child.once('message', answer.resolve);
    this.#child.once('exit', onExit);
    this.#child.send(job);
    try {
      const message = await answer.promise;
      if ('error' in message) throw new Error(`${job.kind}: ${message.error}`);
      return message.load;
    } finally {
      this.#child.off('message', answer.resolve).off('exit', onExit);
    }
  }

  async close(): Promise<void> {
    if (this.#child.exitCode !== null) return;
    const exited = once(this.#child, 'exit');
    this.#child.disconnect();
    await exited;
  }
}
