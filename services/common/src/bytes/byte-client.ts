import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import type { DescMessage, MessageInitShape } from '@bufbuild/protobuf';
import type { Readable } from 'node:stream';
import { Pool } from 'undici';
import type { Dispatcher } from 'undici';
import { AppError, isErrorCode, unavailable } from '../errors.ts';
import { contextToHeaders } from '../rpc/context.ts';
import type { CallContext } from '../rpc/context.ts';
import { defaultTimeoutMs } from '../rpc/contract.ts';
import { requestHeader } from './byte-server.ts';
import type { Downloader, DownloadOperation, Uploader, UploadOperation } from './operations.ts';
import { shielded } from './shielded.ts';

/**
 * From the last byte of an upload to its answer: the store may have to make all of it durable. Less than the idle limit
 * of the gateway, so that a client is told.
 */
const uploadTimeoutMs = 50_000;
/** How long a service may take no byte of a body. */
const stallMs = 30_000;

/** The byte port of one other service. */
export class ByteClient {
  readonly #pool: Pool;

  /** `origin` is like `http://host:port`. */
  constructor(origin: string) {
    this.#pool = new Pool(origin, {
      connections: 128,
      connect: { timeout: 5_000 },
      bodyTimeout: 60_000,
    });
  }

  uploader<I extends DescMessage, O extends DescMessage>(operation: UploadOperation<I, O>): Uploader<I, O> {
    return async (request, body, context) => {
      // A refusal must not destroy the body's own socket: the client is still to read why.
      const view = shielded(body, stallMs);
      const answer = await this.#send(operation, headersOf(operation.input, request, context), view, context);
      const bytes = new Uint8Array(await answer.body.arrayBuffer());
      return fromBinary(operation.output, bytes);
    };
  }

  downloader<I extends DescMessage>(operation: DownloadOperation<I>): Downloader<I> {
    return async (request, context) => {
      const answer = await this.#send(operation, headersOf(operation.input, request, context), null, context);
      return answer.body;
    };
  }

  async close(): Promise<void> {
    await this.#pool.destroy();
  }

  async #send(
    { path, answerMs }: Pick<DownloadOperation<DescMessage>, 'path' | 'answerMs'>,
    headers: Record<string, string>,
    body: Readable | null,
    context: CallContext,
  ): Promise<Dispatcher.ResponseData> {
    let answer: Dispatcher.ResponseData;
    try {
      answer = await this.#pool.request({
        path: `/${path}`,
        method: body ? 'POST' : 'GET',
        headers,
        body,
        signal: context.signal,
        highWaterMark: 1024 * 1024,
        headersTimeout: answerMs ?? (body ? uploadTimeoutMs : defaultTimeoutMs),
      });
    } catch (error) {
      throw unavailable('Content can not be reached just now.', error);
    }
    if (answer.statusCode === 200) return answer;
    throw remoteError(await answer.body.json());
  }
}

function headersOf<I extends DescMessage>(
  schema: I,
  request: MessageInitShape<I>,
  context: CallContext,
): Record<string, string> {
  const message = Buffer.from(toBinary(schema, create(schema, request))).toString('base64url');
  return { ...contextToHeaders(context), [requestHeader]: message };
}

function remoteError(body: unknown): AppError {
  if (typeof body === 'object' && body !== null && 'code' in body && 'detail' in body && 'members' in body) {
    const { code, detail, members } = body;
    if (typeof code === 'string' && isErrorCode(code) && typeof detail === 'string' && typeof members === 'object') {
      return new AppError(code, detail, { members: { ...members } });
    }
  }
  return unavailable('A service answered with something unexpected.');
}
