import type pg from 'pg';

/** More texts than this program has; a text beyond is sent unprepared. */
const statementsMax = 500;

/**
 * Has a client prepare each statement with parameters under a name of its own, so that PostgreSQL parses it once a
 * connection and plans it a few times, not at each call: half of the cost of a small query. `*` is never prepared:
 * when a migration adds a column, its plan would fail on that connection for good.
 */
export class PreparedStatements {
  readonly #names = new Map<string, string>();

  /** Makes `client.query(text, values)` use a prepared statement; for a client that has just connected. */
  use(client: pg.ClientBase): void {
    const { query } = client;
    const prepared = (statement: unknown, ...rest: unknown[]): unknown => {
      const [values, ...others] = rest;
      const name = typeof statement === 'string' && Array.isArray(values) ? this.#nameOf(statement, values) : null;
      return Reflect.apply(query, client, name ? [{ name, text: statement, values }, ...others] : [statement, ...rest]);
    };
    Object.defineProperty(client, 'query', { value: prepared });
  }

  #nameOf(text: string, values: readonly unknown[]): string | null {
    const known = this.#names.get(text);
    if (known !== undefined) return known;
    if (values.length === 0 || this.#names.size >= statementsMax || /(select|returning) \*/.test(text)) return null;
    const name = `s${this.#names.size}`;
    this.#names.set(text, name);
    return name;
  }
}
