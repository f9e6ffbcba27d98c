import { expect, test } from '@jest/globals';
import { toDatabaseError } from './database-error.ts';

function failure(code: string): Error {
  return Object.assign(new Error('what Node says'), { code });
}

test.each(['ECONNREFUSED', 'ECONNRESET', 'ETIMEDOUT', 'ENOTFOUND', 'EAI_AGAIN'])(
  'a connection that fails with %s means that the database is not there just now',
  (code) => {
    expect(toDatabaseError(failure(code))).toMatchObject({ code: 'unavailable' });
  },
);

test.each(['ERR_INVALID_ARG_TYPE', 'ERR_OUT_OF_RANGE', 'ERR_BUFFER_OUT_OF_BOUNDS'])(
  'a mistake of ours, as %s, is not taken for an outage that passes',
  (code) => {
    const mistake = failure(code);
    expect(toDatabaseError(mistake)).toBe(mistake);
  },
);

test('a transaction whose connection was lost, as Kysely tells it, is one that the database was not there for', () => {
  expect(toDatabaseError(new Error('Postgres connection has been discarded'))).toMatchObject({ code: 'unavailable' });
});
