import type pg from 'pg';

/**
 * Ends the connection of a client whose query got no answer in time. The network may have lost what was sent: then the
 * connection would fail whoever gets it next, for as long as TCP goes on trying.
 */
export function endWhenSilent(client: pg.Client): void {
  const { query } = client;
  const watched = (...statement: unknown[]): unknown => {
    const result: unknown = Reflect.apply(query, client, statement);
    if (result instanceof Promise) {
      result.catch((error: unknown) => {
        if (error instanceof Error && error.message === 'Query read timeout') client.connection.stream.destroy();
      });
    }
    return result;
  };
  Object.defineProperty(client, 'query', { value: watched, configurable: true });
}
