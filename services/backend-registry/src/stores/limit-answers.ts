import { Readable, Transform, pipeline } from 'node:stream';
import type { S3Client } from '@aws-sdk/client-s3';
import { unavailable } from '@stowage/common/errors';

/** More than a page of a listing has; what is parsed as a whole may not be longer, in bytes. */
const longestAnswer = 4 * 1024 * 1024;

/** Has a client refuse answers that it would parse as a whole and that are longer than any should be. */
export function limitAnswers(client: S3Client): void {
  client.middlewareStack.add(
    (next, context) => async (args) => {
      const output = await next(args);
      const { response } = output;
      if (!hasBody(response)) return output;
      const isContent = context['commandName'] === 'GetObjectCommand' && response.statusCode < 300;
      if (!isContent) response.body = limited(response.body);
      return output;
    },
    // Right after the answer came, before anything parses it.
    { step: 'deserialize', name: 'limitAnswers', priority: 'low' },
  );
}

function limited(body: Readable): Readable {
  let left = longestAnswer;
  const limit = new Transform({
    transform: (piece: Buffer, _encoding, done) => {
      left -= piece.length;
      if (left < 0) done(unavailable('The answer of the backend is longer than it should be.'));
      else done(null, piece);
    },
  });
  // Its callback keeps an error from being thrown at large; whoever reads sees it on the stream.
  return pipeline(body, limit, () => undefined);
}

function hasBody(response: unknown): response is { statusCode: number; body: Readable } {
  if (typeof response !== 'object' || response === null) return false;
  if (!('body' in response) || !('statusCode' in response)) return false;
  return response.body instanceof Readable && typeof response.statusCode === 'number';
}
