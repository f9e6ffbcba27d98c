import { readFile } from 'node:fs/promises';

/** The resident memory of a process, in bytes. */
export async function residentBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) * 1024;
}

/** Watches the memory of some processes, by name. */
export class MemoryWatch {
  readonly #pids: ReadonlyMap<string, number>;
  readonly #timer: NodeJS.Timeout;
  #idle = new Map<string, number>();
  #peak = new Map<string, number>();

  private constructor(pids: ReadonlyMap<string, number>) {
    this.#pids = pids;
    this.#timer = setInterval(() => void this.#look().catch(() => undefined), 100);
  }

  /** Begins with what they take now as idle. */
  static async start(pids: ReadonlyMap<string, number>): Promise<MemoryWatch> {
    const watch = new MemoryWatch(pids);
    await watch.restart();
    return watch;
  }

  /** Takes what they hold now as idle. */
  async restart(): Promise<void> {
    this.#idle = await this.#read();
    this.#peak = new Map(this.#idle);
  }

  /** How much each took at most beyond idle, in MiB. */
  async growth(): Promise<Record<string, number>> {
    await this.#look();
    const beyond = (name: string): number => (this.#peak.get(name) ?? 0) - (this.#idle.get(name) ?? 0);
    return Object.fromEntries([...this.#pids.keys()].map((name) => [name, Math.round(beyond(name) / 2 ** 20)]));
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  async #look(): Promise<void> {
    for (const [name, bytes] of await this.#read()) this.#peak.set(name, Math.max(bytes, this.#peak.get(name) ?? 0));
  }

  async #read(): Promise<Map<string, number>> {
    const entries = [...this.#pids].map(async ([name, pid]): Promise<[string, number]> => [
      name,
      await residentBytes(pid),
    ]);
    return new Map(await Promise.all(entries));
  }
}
