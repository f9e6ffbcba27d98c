import { downloadDocument, postAndWait, sendDocument } from '../../../tests/support/document-files.ts';
import type { DocumentServer } from '../../../tests/support/document-files.ts';
import { makeInstallation } from '../../../tests/support/installation.ts';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Load } from '../driver/jobs.ts';
import { readOnce } from '../measure/alternate.ts';
import { rowOf } from '../measure/row.ts';
import type { Reading, Row } from '../measure/row.ts';
import { ask, fieldsOf, textOf } from '../system/api.ts';
import { startStowage } from '../system/stowage.ts';
import type { Stowage } from '../system/stowage.ts';
import { Started } from './workload.ts';
import type { Setting, Workload } from './workload.ts';

/** Each takes minutes, and little of it is noise. */
const roundsMax = 3;
const seed = 10;

/** W10 to W14: all metadata of a big installation to a file, and from there into an empty one, over HTTP. */
export const w10: Workload = {
  name: 'W10',
  title: 'export of 1,000,000 files, 50,000 directories and 2,000,000 replicas to a file',
  more: {
    W11: 'validation of that document',
    W12: 'restore plan of that document, on the installation that it came from and on an empty one',
    W13: 'its import into an empty installation',
    W14: 'a look at all of the metadata for what should not be (integrity)',
  },
  run: async (setting) => {
    await using started = new Started(setting, 'w10');
    const rows: Row[] = [];
    for (const system of await started.ownSystems()) {
      const metadata = new Metadata(setting, system);
      await metadata.seed();
      for (let round = 0; round < Math.min(setting.rounds, roundsMax); round += 1) await metadata.outAndIn(round);
      rows.push(...metadata.rows());
    }
    return rows.sort((a, b) => Number(a.workload.slice(1)) - Number(b.workload.slice(1)));
  },
};

class Metadata {
  readonly #setting: Setting;
  readonly #system: Stowage;
  readonly #files: number;
  readonly #readings = new Map<string, Reading[]>();

  constructor(setting: Setting, system: Stowage) {
    this.#setting = setting;
    this.#system = system;
    this.#files = setting.small ? 500 : 1_000_000;
  }

  async seed(): Promise<void> {
    this.#setting.say(`making ${this.#files} files (${this.#system.mode})`);
    const { items } = await ask(this.#system, 'GET', '/api/backends');
    const [first] = Array.isArray(items) ? items.map(fieldsOf) : [];
    const root = textOf(fieldsOf(first?.['config']), 'root_path');
    const second = { name: 'second', type: 'local_directory', config: { root_path: `${root}-second` } };
    const backend = await ask(this.#system, 'POST', '/api/backends', second);
    const backendIds = [textOf(first ?? {}, 'id'), textOf(backend, 'id')] as const;
    await makeInstallation(this.#system.database, { files: this.#files, backendIds, seed });
  }

  async outAndIn(round: number): Promise<void> {
    const system = this.#system;
    const documents = { plain: this.#file('document.json'), gzip: this.#file('document.json.gz') };
    await this.#time('W10', '', system, () => downloadDocument(serverOf(system), documents.plain));
    await this.#time('W10', ', gzip', system, () => downloadDocument(serverOf(system), documents.gzip, true));
    await this.#time('W11', '', system, () => this.#validate(documents.plain, false));
    await this.#time('W11', ', gzip', system, () => this.#validate(documents.gzip, true));
    await this.#time('W14', '', system, () => this.#look(system));
    await this.#time('W12', '', system, () => this.#plan(system, documents.plain, 'unchanged'));
    const { scratch, profile } = this.#setting;
    // The document's backends lie in the folders of the other one.
    const name = `w10-empty-${round}`;
    const empty = await startStowage({ mode: system.mode, scratch, name, profile, localRoots: scratch });
    try {
      let token = '';
      await this.#time('W12', ', empty', empty, async () => {
        token = await this.#plan(empty, documents.plain, 'create');
      });
      await this.#time('W13', '', empty, () => this.#import(empty, token));
    } finally {
      await empty.close();
    }
    await Promise.all(Object.values(documents).map((file) => rm(file)));
  }

  rows(): Row[] {
    return [...this.#readings].map(([name, readings]) => {
      const [workload = '', contender = ''] = name.split('/');
      return rowOf(workload, 'ms', contender, readings);
    });
  }

  #file(name: string): string {
    return join(this.#setting.scratch, `${this.#system.mode}-${name}`);
  }

  async #time(workload: string, what: string, system: Stowage, work: () => Promise<unknown>): Promise<void> {
    const name = `${workload}/${this.#system.mode}${what}`;
    const run = (): Promise<Load> => loadOf(work, this.#files);
    const reading = await readOnce({ name, processes: system.processes, run }, 0);
    this.#readings.set(name, [...(this.#readings.get(name) ?? []), reading]);
    this.#setting.say(`${name}: ${Math.round(reading.load.p50Ms)} ms`);
  }

  async #validate(file: string, gzip: boolean): Promise<void> {
    const answer = fieldsOf(await sendDocument(serverOf(this.#system), '/api/exports/metadata/validate', file, gzip));
    if (answer['valid'] !== true) throw new Error(`the export is not valid: ${JSON.stringify(answer).slice(0, 2_000)}`);
  }

  async #look(system: Stowage): Promise<void> {
    const { ok, problems } = await ask(system, 'GET', '/api/exports/metadata/integrity');
    if (ok !== true) throw new Error(`the metadata are not whole: ${JSON.stringify(problems).slice(0, 2_000)}`);
  }

  async #plan(system: Stowage, file: string, action: 'create' | 'unchanged'): Promise<string> {
    const answer = fieldsOf(await sendDocument(serverOf(system), '/api/exports/metadata/restore-plan', file));
    const files = fieldsOf(fieldsOf(answer['changes'])['files']);
    if (files[action] !== this.#files) throw new Error(`not all files are ${action}: ${JSON.stringify(files)}`);
    return textOf(answer, 'validation_token');
  }

  async #import(empty: Stowage, token: string): Promise<void> {
    const body = { confirm_replace: true, validation_token: token };
    const { imported } = fieldsOf(await postAndWait(serverOf(empty), '/api/exports/metadata/import', body));
    if (fieldsOf(imported)['files'] !== this.#files) throw new Error(`imported were ${JSON.stringify(imported)}`);
  }
}

function serverOf({ port, token }: Stowage): DocumentServer {
  return { url: `http://127.0.0.1:${port}`, token };
}

async function loadOf(work: () => Promise<unknown>, operations: number): Promise<Load> {
  const cpu = process.cpuUsage();
  const started = performance.now();
  await work();
  const p50Ms = performance.now() - started;
  const { user, system } = process.cpuUsage(cpu);
  const driverCpuSeconds = (user + system) / 1e6;
  return {
    seconds: p50Ms / 1_000,
    operations,
    bytes: 0,
    p50Ms,
    p99Ms: 0,
    driverCpuSeconds,
    ids: [],
    parts: {},
    medians: {},
  };
}
