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
  readonly #connect: () => Promise<ClientBase>;
  #client: ClientBase | null = null;
  #position = 0;

  /** `connect` is called when it is needed first, and once. */
  constructor(connect: () => Promise<ClientBase>) {
    this.#connect = connect;
  }

  async keep(section: SectionName, lines: readonly string[]): Promise<void> {
    const client = (this.#client ??= await this.#begin());
    const content = await deflate(lines.join('\n'), { level: constants.Z_BEST_SPEED });
    this.#position += 1;
    await client.query('insert into kept_lines values ($1, $2, $3)', [section, this.#position, content]);
  }

  async *read(section: SectionName): AsyncGenerator<readonly string[]> {
    const client = this.#client;
    for (let after = 0; client !== null;) {
      const { rows } = await client.query<{ position: number; content: Buffer }>(
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

  async #begin(): Promise<ClientBase> {
    const client = await this.#connect();
    await client.query(
      'create temporary table kept_lines (section text not null, position integer not null, content bytea not null)',
    );
    return client;
  }
}
