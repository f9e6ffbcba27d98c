import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import type { DescMessage, MessageInitShape } from '@bufbuild/protobuf';
import type { Readable } from 'node:stream';
import type { Dispatcher, Pool } from 'undici';
import { AppError, isErrorCode, unavailable } from '../errors.ts';
import { contextToHeaders } from '../rpc/context.ts';
import type { CallContext } from '../rpc/context.ts';
import type { Lookup } from '../rpc/addresses.ts';
import { defaultTimeoutMs } from '../rpc/contract.ts';
import { connectTimeoutMs } from '../tls/peer-connector.ts';
import { requestHeader } from './byte-server.ts';
import type { Downloader, DownloadOperation, Uploader, UploadOperation } from './operations.ts';
import { OriginPools } from './origin-pools.ts';
import { shielded } from './shielded.ts';

/**
 * From the last byte of an upload to its answer: the store may have to make all of it durable. Less than the idle limit
 * of the gateway, so that a client is told.
 */
const uploadTimeoutMs = 50_000;
/** How long a service may take no byte of a body. */
const stallMs = 30_000;

/** How often one request is sent at most, where no other address is the reason to send it again. */
const mostTries = 3;

export interface ByteClientOptions {
  /** How connections are made; without it, over plain TCP. */
  connect?: Pool.Options['connect'];
  /** Gives all addresses of a host; without it, the system is asked. */
  lookup?: Lookup;
}

/**
 * The byte port of one other service, by all addresses of its processes in turn. What reached no process, and a
 * download that broke before its answer, is asked of another; a body of which a byte was sent is sent once.
 */
export class ByteClient {
  readonly #pools: OriginPools;

  /** `origins` is like `http://host:port`, or several of them with commas between. */
  constructor(origins: string, { connect, lookup }: ByteClientOptions = {}) {
    const options: Pool.Options = {
      // In a queue for one of a few a request would wait without any limit. There is the connection of a client for each.
      connections: null,
      connect: connect ?? { timeout: connectTimeoutMs },
      bodyTimeout: 60_000,
    };
    this.#pools = new OriginPools(origins, options, lookup);
  }

  uploader<I extends DescMessage, O extends DescMessage>(operation: UploadOperation<I, O>): Uploader<I, O> {
    return async (request, body, context) => {
      const answer = await this.#send(operation, headersOf(operation.input, request, context), body, context);
      const bytes = await answer.body.arrayBuffer().catch((error: unknown) => {
        throw unavailable('Content can not be reached just now.', error);
      });
      return fromBinary(operation.output, new Uint8Array(bytes));
    };
  }

  downloader<I extends DescMessage>(operation: DownloadOperation<I>): Downloader<I> {
    return async (request, context) => {
      const answer = await this.#send(operation, headersOf(operation.input, request, context), null, context);
      return answer.body;
    };
  }

  async close(): Promise<void> {
    await this.#pools.close();
  }

  async #send(
    operation: Pick<DownloadOperation<DescMessage>, 'path' | 'answerMs'>,
    headers: Record<string, string>,
    body: Readable | null,
    context: CallContext,
  ): Promise<Dispatcher.ResponseData> {
    const answer = await this.#sendToOne(operation, headers, body, context).catch((error: unknown) => {
      throw unavailable('Content can not be reached just now.', error);
    });
    if (answer.statusCode === 200) return answer;
    // Not what a byte port says, or cut off: remoteError takes it for an outage.
    throw remoteError(await answer.body.json().catch(() => null));
  }

  /** To the first address that takes it. */
  async #sendToOne(
    { path, answerMs }: Pick<DownloadOperation<DescMessage>, 'path' | 'answerMs'>,
    headers: Record<string, string>,
    body: Readable | null,
    { signal }: CallContext,
  ): Promise<Dispatcher.ResponseData> {
    const unreachable = new Set<Pool>();
    let failure: unknown;
    for (let tries = 1; ; tries += 1) {
      const pool = await this.#pools.next(unreachable);
      if (!pool) throw failure;
      let taken = false;
      try {
        return await pool.request({
          path: `/${path}`,
          method: body ? 'POST' : 'GET',
          headers,
          // A refusal must not destroy the body's own socket: the client is still to read why.
          body: body && shielded(body, stallMs, () => (taken = true)),
          signal,
          highWaterMark: 1024 * 1024,
          headersTimeout: answerMs ?? (body ? uploadTimeoutMs : defaultTimeoutMs),
        });
      } catch (error) {
        failure = error;
        if (taken || signal.aborted) throw error;
        if (isUnreachable(error)) {
          unreachable.add(pool);
          await this.#pools.avoid(pool);
        } else if (!isBroken(error) || tries >= mostTries) throw error;
      }
    }
  }
}

function isUnreachable(error: unknown): boolean {
  return member(error, 'syscall') === 'connect' || member(error, 'code') === 'UND_ERR_CONNECT_TIMEOUT';
}

/** The connection ended before an answer: the process did, or it just closed one that was kept alive. */
function isBroken(error: unknown): boolean {
  const codes: unknown[] = ['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE', 'UND_ERR_CLOSED', 'UND_ERR_DESTROYED'];
  return codes.includes(member(error, 'code'));
}

function member(error: unknown, name: string): unknown {
  return typeof error === 'object' && error !== null ? Reflect.get(error, name) : undefined;
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
