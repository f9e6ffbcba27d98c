import { expect, test } from '@jest/globals';
import { Metadata } from '@grpc/grpc-js';
import { AppError } from '../errors.ts';
import { fromServiceError, toServiceError } from './wire-error.ts';

/** What a caller gets of an error, and how many bytes it took. */
function sent(error: AppError): { got: AppError; bytes: number } {
  const { code = 0, details = '', metadata = new Metadata() } = toServiceError(error);
  const [packed = ''] = metadata.get('grpc-status-details-bin');
  const got = fromServiceError(Object.assign(new Error(), { code, details, metadata }), 'stowage.test.v1.Test');
  return { got, bytes: packed.length + details.length };
}

test('an error arrives as it was thrown', () => {
  const error = new AppError('backend_in_use', 'It holds content.', { members: { count: 3, ids: ['a', 'b'] } });
  expect(sent(error).got).toMatchObject({ code: error.code, detail: error.detail, members: error.members });
});

test('one that is too long for an answer arrives without most of its lists', () => {
  const classes = Array.from({ length: 1_000 }, (_, n) => `${n}`.padStart(63, 'x'));
  const { got, bytes } = sent(
    new AppError('backend_in_use', 'long '.repeat(9_000), { members: { count: 1_000, classes } }),
  );
  expect(got).toMatchObject({ code: 'backend_in_use', members: { count: 1_000, classes: classes.slice(0, 20) } });
  expect(bytes).toBeLessThan(32_000);
});
