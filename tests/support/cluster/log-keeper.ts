import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { createWriteStream } from 'node:fs';
import { mkdir, mkdtemp, readFile, readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Json } from '../client.ts';

const lookEveryMs = 1_000;
const mostLines = 60;

/** What every pod of a release says, those too that are gone by the time somebody asks. */
export class LogKeeper {
  readonly folder: string;
  readonly #namespace: string;
  readonly #pods: () => Promise<Json[]>;
  readonly #followed = new Map<string, ChildProcess>();
  readonly #timer: NodeJS.Timeout;

  private constructor(folder: string, release: { namespace: string; pods(): Promise<Json[]> }) {
    this.folder = folder;
    this.#namespace = release.namespace;
    this.#pods = () => release.pods();
    this.#timer = setInterval(() => void this.#look().catch(() => undefined), lookEveryMs);
  }

  /** Follows the pods from here on; the logs lie in STOWAGE_CLUSTER_LOGS, else in a folder of the system's. */
  static async start(release: { namespace: string; pods(): Promise<Json[]> }): Promise<LogKeeper> {
    const parent = process.env['STOWAGE_CLUSTER_LOGS'] ?? tmpdir();
    await mkdir(parent, { recursive: true });
    return new LogKeeper(await mkdtemp(join(parent, `${release.namespace}-`)), release);
  }

  stop(): void {
    clearInterval(this.#timer);
    for (const child of this.#followed.values()) child.kill();
  }

  /** The lines of all pods that hold one of these texts, such as ids of requests. */
  async linesWith(texts: readonly string[]): Promise<string[]> {
    const found: string[] = [];
    for (const file of await readdir(this.folder)) {
      const lines = (await readFile(join(this.folder, file), 'utf8')).split('\n');
      const fitting = lines.filter((line) => texts.some((text) => line.includes(text)));
      found.push(...fitting.map((line) => `${file}: ${line}`));
    }
    return found.slice(0, mostLines);
  }

  async #look(): Promise<void> {
    for (const pod of await this.#pods()) {
      const name: string = pod['metadata'].name;
      if (this.#followed.has(name) || pod['status'].phase !== 'Running') continue;
      const child = spawn('kubectl', ['-n', this.#namespace, 'logs', '-f', name], {
        stdio: ['ignore', 'pipe', 'ignore'],
      });
      child.stdout.pipe(createWriteStream(join(this.folder, `${name}.log`)));
      this.#followed.set(name, child);
    }
  }
}
