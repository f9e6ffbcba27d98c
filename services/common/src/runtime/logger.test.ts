import { expect, test } from '@jest/globals';
import pg from 'pg';
import { createLogger } from './logger.ts';

test('an error of the database is logged without the rows that it quotes', () => {
  const error = new pg.DatabaseError('null value in column "x" of relation "users"', 0, 'error');
  error.code = '23502';
  error.detail = 'Failing row contains (1, ada, $argon2id$v=19).';
  error.where = 'PL/pgSQL function f(text) line 1 with ada';
  const lines: string[] = [];
  const logger = createLogger('test', 'info', { write: (line) => void lines.push(line) });
  logger.error({ err: new Error('outer', { cause: error }) }, 'one');
  logger.error({ err: error }, 'two');
  expect(lines.map((line) => JSON.parse(line))).toEqual([
    expect.objectContaining({ message: 'one', err: expect.objectContaining({ type: 'Error' }) }),
    expect.objectContaining({
      message: 'two',
      err: expect.objectContaining({ code: '23502', message: error.message }),
    }),
  ]);
  expect(lines.join('')).not.toMatch(/ada/);
});
