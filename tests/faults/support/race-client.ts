import { sha256 } from '../../support/client.ts';
import type { Answer, Client } from '../../support/client.ts';
import type { Random } from '../../support/random.ts';
import { uniqueName } from '../../support/system.ts';
import { completeUpload, finalize } from '../../support/uploads.ts';

/** What a client knows of a file it made, by the answers it got. */
export interface KnownFile {
  id: string;
  sha256: string;
  /** `live` and `gone` were acknowledged; between a deletion and a restore its time in the bin may end at any moment. */
  fate: 'live' | 'unsure' | 'gone';
}

interface Needs {
  client: Client;
  random: Random;
  /** Classes to choose from. */
  classes: readonly string[];
  /** Notes what must not be. */
  violated(what: string): void;
}

const sizes = [0, 1, 900, 60_000, 1_200_000];

/** One client that makes files, reads them, and deletes, restores and purges them, some of it at the same moment. */
export class RaceClient {
  readonly files: KnownFile[] = [];
  readonly counts: Record<string, number> = {};
  readonly #needs: Needs;

  constructor(needs: Needs) {
    this.#needs = needs;
  }

  async run(isOver: () => boolean): Promise<void> {
    const { random } = this.#needs;
    while (!isOver()) {
      const file = this.files[random.integer(0, this.files.length - 1)];
      if (!file || random.chance(0.4)) await this.#upload();
      else if (random.chance(0.3) || file.fate === 'gone') await this.check(file);
      else await this.#change(file);
    }
  }

  /** Reads a file, and finds what was acknowledged. */
  async check(file: KnownFile): Promise<void> {
    const { client, violated } = this.#needs;
    const answer = await this.#call('read', () => client.get(`/api/files/${file.id}/download`));
    if (answer.status === 200) {
      if (file.fate === 'gone') violated(`${file.id} was deleted for good and came back`);
      if (sha256(answer.bytes) !== file.sha256) violated(`${file.id} has other bytes`);
    } else if (file.fate === 'live') {
      violated(`${file.id} is lost: ${answer.status} ${JSON.stringify(answer.json)}`);
    }
  }

  async #upload(): Promise<void> {
    const { client, random, classes, violated } = this.#needs;
    const bytes = random.bytes(sizes[random.integer(0, sizes.length - 1)] ?? 0);
    const fileClass = classes[random.integer(0, classes.length - 1)] ?? 'default';
    const made = await completeUpload(client, bytes, { filename: uniqueName(), file_class: fileClass });
    // Some ask twice at once.
    const asked = Array.from({ length: random.chance(0.2) ? 2 : 1 }, () =>
      this.#call('finalize', () => finalize(client, made)),
    );
    const file = (await Promise.all(asked)).find(({ status }) => status === 200 || status === 201);
    if (file) this.files.push({ id: file.json['id'], sha256: sha256(bytes), fate: 'live' });
    else violated(`the upload ${made.id} became no file`);
  }

  async #change(file: KnownFile): Promise<void> {
    const { random } = this.#needs;
    if (file.fate === 'unsure' && random.chance(0.5)) {
      const [restored, purged] = await Promise.all([this.#restore(file), this.#purge(file)]);
      file.fate = purged ? 'gone' : restored ? 'live' : 'unsure';
      return;
    }
    file.fate = 'unsure';
    if (random.chance(0.3)) await Promise.all([this.#delete(file), this.#restore(file)]);
    else await this.#delete(file);
    if (random.chance(0.4) && (await this.#restore(file))) file.fate = 'live';
    else if (random.chance(0.4) && (await this.#purge(file))) file.fate = 'gone';
  }

  #delete = (file: KnownFile) => this.#does('delete', () => this.#needs.client.delete(`/api/files/${file.id}`));
  #restore = (file: KnownFile) => this.#does('restore', () => this.#needs.client.post(`/api/files/${file.id}/restore`));
  #purge = (file: KnownFile) =>
    this.#does('purge', () => this.#needs.client.delete(`/api/files/${file.id}?permanent=true`));

  async #does(what: string, call: () => Promise<Answer>): Promise<boolean> {
    const { status } = await this.#call(what, call);
    return status < 300;
  }

  async #call(what: string, call: () => Promise<Answer>): Promise<Answer> {
    const answer = await call();
    const name = `${what} ${answer.status}`;
    this.counts[name] = (this.counts[name] ?? 0) + 1;
    if (answer.status >= 500) this.#needs.violated(`${what}: ${answer.status} ${JSON.stringify(answer.json)}`);
    return answer;
  }
}
