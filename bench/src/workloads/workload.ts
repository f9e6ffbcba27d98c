import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { startFileServer } from '../baselines/baseline.ts';
import type { FileBaseline } from '../baselines/baseline.ts';
import type { BarePostgres } from '../baselines/postgres.ts';
import type { Receiving } from '../baselines/receive.ts';
import type { Driver } from '../driver/driver.ts';
import type { Row } from '../measure/row.ts';
import { startStowage } from '../system/stowage.ts';
import type { Mode, Stowage } from '../system/stowage.ts';

/** What a workload is run with. */
export interface Setting {
  driver: Driver;
  postgres: BarePostgres;
  /** Where all workloads share them; else each starts its own, so that none pays for the one before it. */
  shared: readonly Stowage[] | null;
  /** A folder that is removed in the end. */
  scratch: string;
  modes: readonly Mode[];
  rounds: number;
  /** Where Stowage's processes leave their CPU profiles, if they are to. */
  profile: string | null;
  /** Only to see that everything works. */
  small: boolean;
  /** Tells how far it is. */
  say(text: string): void;
}

/** One of the workloads, by the name it is chosen by. */
export interface Workload {
  name: string;
  title: string;
  /** Names and titles of others that it measures on the way. */
  more?: Readonly<Record<string, string>>;
  run(setting: Setting): Promise<Row[]>;
}

/** What is started for a workload, and stopped whatever becomes of it. */
export class Started {
  readonly #stack = new AsyncDisposableStack();
  readonly #setting: Setting;
  readonly #name: string;

  constructor(setting: Setting, name: string) {
    this.#setting = setting;
    this.#name = name;
  }

  /** A Stowage of each mode that was asked for. */
  async systems(): Promise<readonly Stowage[]> {
    return this.#setting.shared ?? this.ownSystems();
  }

  /** As systems, with nothing in them that other workloads left. */
  async ownSystems(): Promise<readonly Stowage[]> {
    const systems: Stowage[] = [];
    const { scratch, profile } = this.#setting;
    for (const mode of this.#setting.modes) {
      const system = await startStowage({ mode, scratch, name: this.#name, profile });
      this.#stack.defer(() => system.close());
      systems.push(system);
    }
    return systems;
  }

  async fileServer(mode: Receiving): Promise<FileBaseline> {
    const server = await startFileServer(join(this.#setting.scratch, this.#name), mode);
    this.#stack.defer(async () => {
      await server.close();
      await rm(server.directory, { recursive: true, force: true });
    });
    return server;
  }

  /** Keeps something else until the end. */
  async add<T extends { close(): Promise<void> }>(starting: Promise<T>): Promise<T> {
    const started = await starting;
    this.#stack.defer(() => started.close());
    return started;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#stack.disposeAsync();
  }
}
