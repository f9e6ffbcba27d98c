import { promisify } from 'node:util';
import { constants, deflateRaw, inflateRaw } from 'node:zlib';
import type { ClientBase } from 'pg';
import type { LineStore } from './ordered-digest.ts';
import type { SectionName } from './records.ts';

const deflate = promisify(deflateRaw);
const inflate = promisify(inflateRaw);

/**
 * Keeps canonical lines in a temporary table of the connection: a document whose sections come in another order may be larger than
 * memory. Made when it is needed first, gone with `discard temporary` or the connection.
 */
export class KeptLines implements LineStore {
  readonly #client: ClientBase;
  #made = false;
  #position = 0;

  constructor(client: ClientBase) {
    this.#client = client;
  }

  async keep(section: SectionName, lines: readonly string[]): Promise<void> {
    if (!this.#made) {
      await this.#client.query(
        'create temporary table kept_lines (section text not null, position integer not null, content bytea not null)',
      );
      this.#made = true;
    }
    const content = await deflate(lines.join('\n'), { level: constants.Z_BEST_SPEED });
    this.#position += 1;
    await this.#client.query('insert into kept_lines values ($1, $2, $3)', [section, this.#position, content]);
  }

  async *read(section: SectionName): AsyncGenerator<readonly string[]> {
    for (let after = 0; this.#made;) {
      const { rows } = await this.#client.query<{ position: number; content: Buffer }>(
        'select position, content from kept_lines where section = $1 and position > $2 order by position limit 8',
        [section, after],
      );
      for (const { position, content } of rows) {
        after = position;
        // Canonical JSON has no line feed within.
        yield (await inflate(content)).toString().split('\n');
      }
      if (rows.length === 0) return;
    }
  }
}
